//! Compares two objects: the paths that are in only one of them or differ.
//!
//! Pure; called by [`super::update`].

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::merge_schema::{ListOwnership, ListType, MapType, MergeSchema, TypeId};
use super::path_element::PathElement;
use super::typed::{
    Alternatives, Form, TypeMismatch, alternatives, check_scalar, form, item_element, item_error,
};
use super::value_order::equal;

/// How the second object differs from the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

impl Comparison {
    /// Without the paths below those of a set.
    pub(super) fn without(self, excluded: &FieldSet) -> Self {
        if excluded.is_empty() {
            return self;
        }
        Self {
            removed: self.removed.recursive_difference(excluded),
            modified: self.modified.recursive_difference(excluded),
            added: self.added.recursive_difference(excluded),
        }
    }
}

/// The comparison of a value: of the paths below it, and of the path to it.
#[derive(Default)]
struct ValueComparison {
    below: Comparison,
    removed: bool,
    modified: bool,
    added: bool,
}

impl ValueComparison {
    fn is_equal(&self) -> bool {
        let Comparison { removed, modified, added } = &self.below;
        let different = self.removed || self.modified || self.added;
        !different && removed.is_empty() && modified.is_empty() && added.is_empty()
    }

    fn attach(self, element: &PathElement, into: &mut Comparison) {
        into.removed.attach_if_any(element, self.removed, self.below.removed);
        into.modified.attach_if_any(element, self.modified, self.below.modified);
        into.added.attach_if_any(element, self.added, self.below.added);
    }
}

impl FieldSet {
    /// [`FieldSet::attach`] that clones the element only where it is needed.
    fn attach_if_any(&mut self, element: &PathElement, member: bool, below: FieldSet) {
        if member || !below.is_empty() {
            self.attach(element.clone(), member, below);
        }
    }
}

/// Compares two objects of a kind.
///
/// # Errors
/// One of them does not fit the schema.
pub(super) fn compare(
    schema: &MergeSchema,
    old: &Value,
    new: &Value,
) -> Result<Comparison, TypeMismatch> {
    let walk = Walk { schema };
    Ok(walk.values(schema.root(), Some(old), Some(new))?.below)
}

struct Walk<'a> {
    schema: &'a MergeSchema,
}

type TypedResult<T> = Result<T, TypeMismatch>;

impl Walk<'_> {
    fn values(
        &self,
        type_: TypeId,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> TypedResult<ValueComparison> {
        let mut found = ValueComparison::default();
        let definition = self.schema.get(type_);
        let (of_old, of_new) = (alternatives(definition, old), alternatives(definition, new));
        let leaf = match (old, new) {
            (None, None) => return Ok(found),
            (Some(_), None) => self.form(type_, of_old, old, new, &mut found)?,
            (None, Some(_)) => self.form(type_, of_new, old, new, &mut found)?,
            (Some(_), Some(_)) if of_old == of_new => {
                self.form(type_, of_new, old, new, &mut found)?
            }
            // The value changed its form: all of the old one goes, all of the new one comes.
            (Some(_), Some(_)) => {
                self.form(type_, of_old, old, new, &mut found)?;
                self.form(type_, of_new, old, new, &mut found)?
            }
        };
        if !leaf {
            found.added |= old.is_none();
            found.removed |= old.is_some() && new.is_none();
        }
        Ok(found)
    }

    /// Compares two values in one form. Returns whether they were compared as a whole.
    fn form(
        &self,
        type_: TypeId,
        alternatives: Alternatives,
        old: Option<&Value>,
        new: Option<&Value>,
        found: &mut ValueComparison,
    ) -> TypedResult<bool> {
        match form(self.schema.get(type_), alternatives) {
            Some(Form::Scalar(scalar)) => {
                let wrong_old = check_scalar(scalar, old, "lhs: ");
                if let (Some(error), Some(_)) = (wrong_old, check_scalar(scalar, new, "rhs: ")) {
                    return Err(error);
                }
                leaf(old, new, found);
                Ok(true)
            }
            Some(Form::List(list)) => {
                let (left, right) = (items(old), items(new));
                let both_empty =
                    left.is_none_or(<[_]>::is_empty) && right.is_none_or(<[_]>::is_empty);
                if list.ownership == ListOwnership::Atomic || both_empty {
                    leaf(old, new, found);
                    return Ok(true);
                }
                let (left, right) = (left.unwrap_or_default(), right.unwrap_or_default());
                self.lists(list, left, right, &mut found.below)?;
                Ok(false)
            }
            Some(Form::Map(map)) => {
                let (left, right) = (fields(old), fields(new));
                let both_empty = left.is_none_or(Map::is_empty) && right.is_none_or(Map::is_empty);
                if map.atomic || both_empty {
                    leaf(old, new, found);
                    return Ok(true);
                }
                self.maps(map, left, right, &mut found.below)?;
                Ok(false)
            }
            None => Err(TypeMismatch::new("schema error: invalid atom: inlined")),
        }
    }

    fn maps(
        &self,
        map: &MapType,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
        found: &mut Comparison,
    ) -> TypedResult<()> {
        let mut visit = |name: &str, left: Option<&Value>, right: Option<&Value>| {
            let Some(type_) = map.field_type(name) else {
                let error = TypeMismatch::new("schema error: invalid atom: inlined");
                return Err(error.under(&PathElement::field(name)));
            };
            match self.values(type_, left, right) {
                // Most fields are equal, and need no element.
                Ok(compared) if compared.is_equal() => {}
                Ok(compared) => compared.attach(&PathElement::field(name), found),
                Err(error) => return Err(error.under(&PathElement::field(name))),
            }
            Ok(())
        };
        for (name, value) in old.into_iter().flatten() {
            visit(name, Some(value), new.and_then(|new| new.get(name)))?;
        }
        for (name, value) in new.into_iter().flatten() {
            if old.is_none_or(|old| !old.contains_key(name)) {
                visit(name, None, Some(value))?;
            }
        }
        Ok(())
    }

    fn lists(
        &self,
        list: &ListType,
        old: &[Value],
        new: &[Value],
        found: &mut Comparison,
    ) -> TypedResult<()> {
        let mut items: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for (side, values) in [(0, old), (1, new)] {
            for (index, item) in values.iter().enumerate() {
                let element = item_element(self.schema, list, item)
                    .map_err(|error| item_error(list, index, error))?;
                let entry = items.entry(element).or_default();
                if side == 0 { entry.0.push(item) } else { entry.1.push(item) }
            }
        }
        for (element, (left, right)) in items {
            let under = |error: TypeMismatch| error.under(&element);
            match (left.as_slice(), right.as_slice()) {
                ([] | [_], [] | [_]) => {
                    let (left, right) = (left.first().copied(), right.first().copied());
                    let compared = self.values(list.items, left, right).map_err(under)?;
                    compared.attach(&element, found);
                }
                // Duplicates are compared as a whole.
                ([_, _, ..], [_, _, ..]) => {
                    let same = left.len() == right.len()
                        && left.iter().zip(&right).all(|(left, right)| equal(left, right));
                    found.modified.attach_if_any(&element, !same, FieldSet::default());
                }
                ([_, _, ..], rest) => {
                    if let [one] = rest {
                        let compared = self.values(list.items, None, Some(one)).map_err(under)?;
                        compared.attach(&element, found);
                    }
                    found.removed.attach(element, true, FieldSet::default());
                }
                (rest, [_, _, ..]) => {
                    if let [one] = rest {
                        let compared = self.values(list.items, Some(one), None).map_err(under)?;
                        compared.attach(&element, found);
                    }
                    found.added.attach(element, true, FieldSet::default());
                }
            }
        }
        Ok(())
    }
}

fn leaf(old: Option<&Value>, new: Option<&Value>, found: &mut ValueComparison) {
    match (old, new) {
        (None, _) => found.added = true,
        (_, None) => found.removed = true,
        (Some(old), Some(new)) => found.modified |= !equal(old, new),
    }
}

fn items(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).map(Vec::as_slice)
}

fn fields(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}
