//! Merge patch (RFC 7386), with the deviations of Kubernetes.

use serde_json::{Map, Value};

use super::{PatchError, json_type};

pub(super) fn apply(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    let fields = match patch {
        Value::Object(fields) => fields,
        Value::Null => return Err(PatchError::Malformed("Invalid JSON Patch".into())),
        other => {
            return Err(PatchError::Malformed(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type \
                 map[string]interface {{}}",
                json_type(other)
            )));
        }
    };
    let mut document = target.clone();
    match &mut document {
        Value::Object(into) => merge(into, fields),
        _ => document = without_nulls(patch),
    }
    Ok(document)
}

fn merge(into: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        if value.is_null() {
            into.remove(key);
            continue;
        }
        match (into.get_mut(key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            // A list that replaces an object keeps the nulls in its items.
            (Some(old @ Value::Object(_)), new) => *old = new.clone(),
            (_, new) => {
                into.insert(key.clone(), without_nulls(new));
            }
        }
    }
}

/// Returns the value without null fields. List items stay.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), without_nulls(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(without_nulls).collect::<Vec<_>>().into(),
        other => other.clone(),
    }
}
