//! Merges an applied object into the stored one: its fields win, lists are merged by their type, the rest stays.
//!
//! Pure; called by [`super::update`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::merge_schema::{ListOwnership, ListType, MapType, MergeSchema, TypeId};
use super::path_element::PathElement;
use super::typed::{
    Form, TypeMismatch, alternatives, check_scalar, form, item_element, item_error,
};

type TypedResult<T> = Result<T, TypeMismatch>;

/// Merges `applied` into `live`.
///
/// # Errors
/// One of them does not fit the schema.
pub(super) fn merge(schema: &MergeSchema, live: &Value, applied: &Value) -> TypedResult<Value> {
    let merged = values(schema, schema.root(), Some(live), Some(applied))?;
    Ok(merged.unwrap_or(Value::Null))
}

/// Merges two values; `None` if nothing is left.
fn values(
    schema: &MergeSchema,
    type_: TypeId,
    live: Option<&Value>,
    applied: Option<&Value>,
) -> TypedResult<Option<Value>> {
    let definition = schema.get(type_);
    // Where the forms differ, that of the applied value counts.
    let decisive = if applied.is_some() { applied } else { live };
    match form(definition, alternatives(definition, decisive)) {
        Some(Form::Scalar(scalar)) => {
            let wrong_live = check_scalar(scalar, live, "lhs: ");
            if let (Some(error), Some(_)) = (wrong_live, check_scalar(scalar, applied, "rhs: ")) {
                return Err(error);
            }
            Ok(leaf(live, applied))
        }
        Some(Form::List(list)) => {
            let (left, right) = (items(live), items(applied));
            let both_empty = left.is_none_or(<[_]>::is_empty) && right.is_none_or(<[_]>::is_empty);
            if list.ownership == ListOwnership::Atomic || both_empty {
                return Ok(leaf(live, applied));
            }
            lists(schema, list, left.unwrap_or_default(), right.unwrap_or_default())
        }
        Some(Form::Map(map)) => {
            let (left, right) = (fields(live), fields(applied));
            let both_empty = left.is_none_or(Map::is_empty) && right.is_none_or(Map::is_empty);
            if map.atomic || both_empty {
                return Ok(leaf(live, applied));
            }
            maps(schema, map, left, right)
        }
        None => Err(TypeMismatch::new("schema error: invalid atom: inlined")),
    }
}

fn leaf(live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    applied.or(live).cloned()
}

fn maps(
    schema: &MergeSchema,
    map: &MapType,
    live: Option<&Map<String, Value>>,
    applied: Option<&Map<String, Value>>,
) -> TypedResult<Option<Value>> {
    let mut merged = Map::new();
    let mut add = |name: &String, left: Option<&Value>, right: Option<&Value>| {
        let under = |error: TypeMismatch| error.under(&PathElement::field(name));
        let type_ = map
            .field_type(name)
            .ok_or_else(|| under(TypeMismatch::new("schema error: invalid atom: inlined")))?;
        if let Some(value) = values(schema, type_, left, right).map_err(under)? {
            merged.insert(name.clone(), value);
        }
        Ok(())
    };
    for (name, value) in live.into_iter().flatten() {
        add(name, Some(value), applied.and_then(|applied| applied.get(name)))?;
    }
    for (name, value) in applied.into_iter().flatten() {
        if live.is_none_or(|live| !live.contains_key(name)) {
            add(name, None, Some(value))?;
        }
    }
    Ok((!merged.is_empty()).then_some(Value::Object(merged)))
}

/// One side of two lists that are merged.
struct IndexedItems {
    /// The elements in the order of the list.
    elements: Vec<PathElement>,
    /// The index of each element; `None` for one that is there twice.
    by_element: BTreeMap<PathElement, Option<usize>>,
}

impl IndexedItems {
    fn new(
        schema: &MergeSchema,
        list: &ListType,
        items: &[Value],
        duplicates: bool,
    ) -> TypedResult<Self> {
        let mut elements = Vec::with_capacity(items.len());
        let mut by_element = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            let element =
                item_element(schema, list, item).map_err(|error| item_error(list, index, error))?;
            if by_element.contains_key(&element) {
                if !duplicates {
                    let text = format!("duplicate entries for key {element}");
                    return Err(TypeMismatch::new(text));
                }
                by_element.insert(element.clone(), None);
            } else {
                by_element.insert(element.clone(), Some(index));
            }
            elements.push(element);
        }
        Ok(Self { elements, by_element })
    }

    fn has(&self, element: &PathElement) -> bool {
        self.by_element.contains_key(element)
    }

    /// The item of an element: nothing if there is none, null if there are several.
    fn item<'a>(&self, items: &'a [Value], element: &PathElement) -> Option<&'a Value> {
        const SEVERAL: &Value = &Value::Null;
        let index = self.by_element.get(element)?;
        Some(index.and_then(|index| items.get(index)).unwrap_or(SEVERAL))
    }
}

/// Merges two sets or map lists. Items of both keep the order of the applied list; what only the stored list has stays
/// where it was between them.
fn lists(
    schema: &MergeSchema,
    list: &ListType,
    live: &[Value],
    applied: &[Value],
) -> TypedResult<Option<Value>> {
    let right = IndexedItems::new(schema, list, applied, false)?;
    let left = IndexedItems::new(schema, list, live, true)?;
    let mut shared: VecDeque<&PathElement> =
        right.elements.iter().filter(|element| left.has(element)).collect();
    let mut next_shared = shared.pop_front();
    let mut merged_elements: BTreeSet<&PathElement> = BTreeSet::new();
    let mut merged = Vec::with_capacity(live.len().max(applied.len()));
    let mut add = |element: &PathElement, left: Option<&Value>, right: Option<&Value>| {
        let value = values(schema, list.items, left, right);
        merged.extend(value.map_err(|error| error.under(element))?);
        Ok(())
    };
    let (mut l, mut r) = (0, 0);
    while l < live.len() || r < applied.len() {
        if l < live.len() && r < applied.len() {
            let element = &left.elements[l];
            if *element == right.elements[r] {
                merged_elements.insert(element);
                add(element, left.item(live, element), right.item(applied, element))?;
                (l, r) = (l + 1, r + 1);
                next_shared = shared.pop_front();
                continue;
            }
            if right.has(element) && next_shared.is_some_and(|next| next != element) {
                l += 1; // it is taken when its turn in the applied list comes
                continue;
            }
        }
        if l < live.len() {
            let element = &left.elements[l];
            if !right.has(element) {
                add(element, live.get(l), None)?;
                l += 1;
                continue;
            }
            if merged_elements.contains(element) {
                l += 1;
            }
        }
        if r < applied.len() {
            let element = &right.elements[r];
            merged_elements.insert(element);
            add(element, left.item(live, element), right.item(applied, element))?;
            r += 1;
            if next_shared == Some(element) {
                next_shared = shared.pop_front();
            }
        }
    }
    Ok((!merged.is_empty()).then_some(Value::Array(merged)))
}

fn items(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).map(Vec::as_slice)
}

fn fields(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}
