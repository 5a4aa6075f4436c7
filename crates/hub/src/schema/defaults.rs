//! Applies defaults and drops nulls that are not allowed.

use serde_json::Value;

use super::node::{AdditionalProperties, SchemaNode};
use crate::object_limits::{MAX_OBJECT_BYTES, encoded_bytes};

/// Drops null fields that are neither nullable nor have a default.
pub(super) fn drop_nulls(node: &SchemaNode, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                let Some(part) = node.field(name) else { return true };
                if is_disallowed_null(part, value) {
                    return part.default.is_some();
                }
                drop_nulls(part, value);
                true
            });
        }
        Value::Array(items) => {
            if let Some(part) = &node.items {
                items.iter_mut().for_each(|item| drop_nulls(part, item));
            }
        }
        _ => {}
    }
}

/// More bytes of defaults are not inserted into one object: it is larger than any that is stored then, and refused.
const MAX_INSERTED_BYTES: usize = MAX_OBJECT_BYTES + (1 << 20);

/// Applies defaults, including those inside default values. A default of list items multiplies with the items, so what is
/// inserted is limited.
pub(super) fn apply_defaults(node: &SchemaNode, value: &mut Value) {
    let mut left = MAX_INSERTED_BYTES;
    insert_defaults(node, value, &mut left);
}

fn insert_defaults(node: &SchemaNode, value: &mut Value, left: &mut usize) {
    match value {
        Value::Object(fields) => {
            for (name, part) in &node.properties {
                if let Some(default) = &part.default
                    && fields.get(name).is_none_or(|value| is_disallowed_null(part, value))
                    && take_bytes(default, left)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                let named = node.properties.get(name);
                match (named, &node.additional) {
                    (Some(part), _) => insert_defaults(part, value, left),
                    (None, AdditionalProperties::Schema(part)) => replace_null(part, value, left),
                    (None, _) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(part) = &node.items {
                items.iter_mut().for_each(|item| replace_null(part, item, left));
            }
        }
        _ => {}
    }
}

/// Whether a default may still be inserted.
fn take_bytes(default: &Value, left: &mut usize) -> bool {
    let size = encoded_bytes(default);
    let fits = size <= *left;
    // After one that does not fit, none is inserted: the object is too large in any case.
    *left = if fits { *left - size } else { 0 };
    fits
}

/// Writes whole floats as integers (`1.0` as `1`), as kube-apiserver stores them.
#[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
pub(super) fn normalize_numbers(value: &mut Value) {
    const MAX: f64 = 9_007_199_254_740_991.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() <= MAX);
            if let Some(float) = whole {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_numbers),
        Value::Object(fields) => fields.values_mut().for_each(normalize_numbers),
        _ => {}
    }
}

fn replace_null(part: &SchemaNode, value: &mut Value, left: &mut usize) {
    if is_disallowed_null(part, value)
        && let Some(default) = &part.default
        && take_bytes(default, left)
    {
        *value = default.clone();
    }
    insert_defaults(part, value, left);
}

fn is_disallowed_null(part: &SchemaNode, value: &Value) -> bool {
    value.is_null() && !part.nullable
}
