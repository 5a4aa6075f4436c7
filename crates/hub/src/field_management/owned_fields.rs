//! The field set of an object: every path that whoever applies the object owns.
//!
//! Pure; called by [`super::update`].

use std::collections::BTreeMap;

use serde_json::Value;

use super::field_set::FieldSet;
use super::merge_schema::{ListOwnership, ListType, MapType, MergeSchema, TypeId};
use super::path_element::PathElement;
use super::typed::{Form, form_of, item_element};

/// The paths of an object that fits its schema.
pub(super) fn field_set(schema: &MergeSchema, type_: TypeId, value: &Value) -> FieldSet {
    walk(schema, type_, value).1
}

/// Whether the value itself is owned, and the paths below it.
fn walk(schema: &MergeSchema, type_: TypeId, value: &Value) -> (bool, FieldSet) {
    match form_of(schema.get(type_), value) {
        Some(Form::Scalar(_)) => (true, FieldSet::default()),
        Some(Form::List(list)) if list.ownership == ListOwnership::Atomic => {
            (true, FieldSet::default())
        }
        Some(Form::List(list)) => (false, walk_list(schema, list, value)),
        Some(Form::Map(map)) if map.atomic => (true, FieldSet::default()),
        Some(Form::Map(map)) => (false, walk_map(schema, map, value)),
        None => (false, FieldSet::default()),
    }
}

fn walk_list(schema: &MergeSchema, list: &ListType, value: &Value) -> FieldSet {
    let mut items: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
    for item in value.as_array().into_iter().flatten() {
        if let Ok(element) = item_element(schema, list, item) {
            items.entry(element).or_default().push(item);
        }
    }
    let mut set = FieldSet::default();
    for (element, items) in items {
        // What is in the list twice is owned without its parts.
        let below = match items.as_slice() {
            [item] => walk(schema, list.items, item).1,
            _ => FieldSet::default(),
        };
        set.attach(element, true, below);
    }
    set
}

fn walk_map(schema: &MergeSchema, map: &MapType, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        let Some(type_) = map.field_type(name) else { continue };
        let (owned, below) = walk(schema, type_, value);
        let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        let member = owned || empty || !map.fields.contains_key(name);
        set.attach(PathElement::field(name), member, below);
    }
    set
}
