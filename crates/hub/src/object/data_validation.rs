//! Validates the data of ConfigMaps and Secrets: their keys, their size, and that an immutable one stays. Pure.

use serde_json::{Map, Value};

use crate::kind_registry::ResourceKind;
use crate::object_limits::MAX_FINDINGS;
use crate::schema::FieldError;

/// The largest contents of a ConfigMap or Secret, as in Kubernetes.
const MAX_DATA_BYTES: usize = 1 << 20;
const MAX_KEY_LENGTH: usize = 253;

/// Returns the errors in the data of an object. `old` is the stored one.
#[must_use]
pub fn validate_data(kind: &ResourceKind, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let fields: &[&str] = match kind.kind.as_str() {
        "ConfigMap" if kind.built_in => &["data", "binaryData"],
        "Secret" if kind.built_in => &["data"],
        _ => return Vec::new(),
    };
    let mut errors = Vec::new();
    for field in fields {
        for key in data(object, field).into_iter().flatten().map(|(key, _)| key) {
            if errors.len() >= MAX_FINDINGS {
                return errors;
            }
            let place = || format!("{field}[{key}]");
            let faults = key_faults(key).into_iter();
            errors.extend(faults.map(|fault| FieldError::invalid(place(), key.as_str(), fault)));
            let other = (*field == "data").then(|| data(object, "binaryData")).flatten();
            if other.is_some_and(|other| other.contains_key(key)) {
                let fault = "duplicate of key present in binaryData";
                errors.push(FieldError::invalid(place(), key.as_str(), fault));
            }
        }
    }
    // One that an older version stored may stay as large as it is.
    let size = data_bytes(kind, object);
    if size > MAX_DATA_BYTES && old.is_none_or(|old| size > data_bytes(kind, old)) {
        let field = if kind.kind == "Secret" { "data" } else { "" };
        errors.push(FieldError::too_long(field, MAX_DATA_BYTES as u64));
    }
    errors.extend(old.map(|old| immutable_changes(object, old, fields)).unwrap_or_default());
    errors
}

fn data<'a>(object: &'a Value, field: &str) -> Option<&'a Map<String, Value>> {
    object.get(field).and_then(Value::as_object)
}

fn data_bytes(kind: &ResourceKind, object: &Value) -> usize {
    let sum = |field: &str| -> usize {
        let values = data(object, field).into_iter().flatten().map(|(_, value)| value);
        values.filter_map(Value::as_str).map(str::len).sum()
    };
    match kind.kind.as_str() {
        "Secret" => sum("data") / 4 * 3,
        _ => sum("data") + sum("binaryData") / 4 * 3,
    }
}

fn key_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if key.len() > MAX_KEY_LENGTH {
        faults.push(format!("must be no more than {MAX_KEY_LENGTH} bytes"));
    }
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    if key.is_empty() || !key.chars().all(fits) {
        faults.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
             'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
             '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match key {
        "." => faults.push("must not be '.'".to_owned()),
        ".." => faults.push("must not be '..'".to_owned()),
        key if key.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

/// What an update changes although the object is immutable.
fn immutable_changes(object: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    if old["immutable"] != true {
        return Vec::new();
    }
    let text = "field is immutable when `immutable` is set";
    let mut errors = Vec::new();
    if object["immutable"] != true {
        errors.push(FieldError::forbidden("immutable", text));
    }
    let changed = fields.iter().filter(|field| data(object, field) != data(old, field));
    errors.extend(changed.map(|field| FieldError::forbidden(*field, text)));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(name: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
        let kinds = crate::built_in::kinds();
        let kind = kinds.iter().find(|kind| kind.kind == name).unwrap();
        validate_data(kind, object, old).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn keys_and_sizes_are_checked() {
        let long = "k".repeat(254);
        for (object, expected) in [
            (json!({"data": {"a.b-c_D": "1"}}), vec![]),
            (
                json!({"data": {"a b": "1", "..": "", "..x": ""}}),
                vec!["data[..]", "data[..x]", "data[a b]"],
            ),
            (json!({"data": {"a": "1"}, "binaryData": {"a": "MQ=="}}), vec!["data[a]"]),
            (json!({"data": {long.as_str(): "1"}}), vec![format!("data[{long}]").leak()]),
            (json!({"data": {"a": "x".repeat(1 << 20)}}), vec![]),
            (json!({"data": {"a": "x".repeat(1 << 20), "b": "x"}}), vec![""]),
        ] {
            assert_eq!(fields("ConfigMap", &object, None), expected);
        }
        let large = json!({"data": {"a": "x".repeat(3 << 20)}});
        assert_eq!(fields("Secret", &large, None), ["data"]);
        assert_eq!(fields("Secret", &large, Some(&large)), [""; 0], "it may stay");
        assert_eq!(fields("Node", &large, None), [""; 0]);
    }

    #[test]
    fn an_immutable_object_stays() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        assert_eq!(fields("Secret", &old, Some(&old)), [""; 0]);
        let new = json!({"data": {"a": "2"}});
        assert_eq!(fields("ConfigMap", &new, Some(&old)), ["immutable", "data"]);
    }
}
