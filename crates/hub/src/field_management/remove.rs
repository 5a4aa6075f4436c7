//! Removes the paths of a set from an object.
//!
//! Pure; called by [`super::update`] when an applier gives fields up.

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::merge_schema::{ListOwnership, MergeSchema, TypeId};
use super::path_element::PathElement;
use super::typed::{Form, form_of, item_element};

/// The object without the paths of a set. An object or list that becomes empty becomes null.
pub(super) fn remove_fields(schema: &MergeSchema, object: &Value, paths: &FieldSet) -> Value {
    without(schema, schema.root(), object, paths)
}

fn without(schema: &MergeSchema, type_: TypeId, value: &Value, paths: &FieldSet) -> Value {
    match form_of(schema.get(type_), value) {
        Some(Form::Scalar(_)) => value.clone(),
        Some(Form::List(list)) => {
            if list.ownership == ListOwnership::Atomic {
                return Value::Null;
            }
            let items = value.as_array().into_iter().flatten();
            let kept: Vec<Value> = items
                .filter_map(|item| match item_element(schema, list, item) {
                    Ok(element) => child(schema, list.items, &element, item, paths),
                    Err(_) => Some(item.clone()),
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        Some(Form::Map(map)) => {
            if map.atomic {
                return Value::Null;
            }
            let fields = value.as_object().into_iter().flatten();
            let kept: Map<String, Value> = fields
                .filter_map(|(name, value)| {
                    let kept = match map.field_type(name) {
                        Some(type_) => {
                            child(schema, type_, &PathElement::field(name), value, paths)?
                        }
                        None => value.clone(),
                    };
                    Some((name.clone(), kept))
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        None => Value::Null,
    }
}

fn child(
    schema: &MergeSchema,
    type_: TypeId,
    element: &PathElement,
    value: &Value,
    paths: &FieldSet,
) -> Option<Value> {
    if paths.has(element) {
        return None;
    }
    Some(match paths.below(element) {
        Some(below) => without(schema, type_, value, below),
        None => value.clone(),
    })
}
