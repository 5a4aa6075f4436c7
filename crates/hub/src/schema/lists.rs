//! Finds duplicates in lists that are sets or maps.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::node::{ListKind, SchemaNode};
use super::{FieldError, child_path};

/// Reports duplicates anywhere in an object.
pub(super) fn validate(root: &SchemaNode, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(root, object, "", &mut errors);
    errors
}

fn walk(node: &SchemaNode, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if !(value.is_object() || value.is_array()) {
                    continue;
                }
                if let Some(part) = node.properties.get(name) {
                    walk(part, value, &child_path(path, name), errors);
                } else if let Some(part) = node.field(name) {
                    walk(part, value, &format!("{path}[{name}]"), errors);
                }
            }
        }
        Value::Array(items) => {
            match &node.list {
                ListKind::Atomic => {}
                ListKind::Set => errors.extend(duplicate_errors(items, path)),
                ListKind::Map(keys) => duplicate_key_errors(items, keys, path, errors),
            }
            if let Some(part) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    walk(part, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn duplicate_key_errors(
    items: &[Value],
    keys: &[String],
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let alien = items.iter().position(|item| !item.is_object() && !item.is_null());
    if let Some(index) = alien {
        let what = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(format!("{path}[{index}]"), items[index].clone(), what));
        return;
    }
    let found: Vec<Value> = items
        .iter()
        .map(|item| {
            let pairs = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
            Value::Object(pairs.collect::<Map<_, _>>())
        })
        .collect();
    errors.extend(duplicate_errors(&found, path));
}

/// Reports each repeated value once, at its second occurrence.
fn duplicate_errors(items: &[Value], path: &str) -> Vec<FieldError> {
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(items.len());
    let mut errors = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let times = seen.entry(item.to_string()).or_insert(0);
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), item.clone()));
        }
    }
    errors
}
