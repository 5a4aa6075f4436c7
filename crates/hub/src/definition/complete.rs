//! The form in which an API server shows a definition: with the names that follow from others, without empty fields.

use serde_json::{Map, Value, json};

use super::storage_version;
use crate::schema::normalize_numbers;

/// The fields of a schema that are left out if they are empty.
const OMITTED_IF_EMPTY: [&str; 26] = [
    "$schema",
    "allOf",
    "anyOf",
    "definitions",
    "dependencies",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "id",
    "nullable",
    "oneOf",
    "pattern",
    "patternProperties",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
    "default",
    "example",
];

/// Completes a decoded definition. What is malformed stays as it is, for the validation to name.
pub fn complete(definition: &mut Value) {
    if let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) {
        complete_spec(spec);
    }
    let stored = definition["status"]["storedVersions"].as_array();
    if stored.is_none_or(Vec::is_empty)
        && let Some(version) = storage_version(definition).map(str::to_owned)
        && (definition["status"].is_object() || definition["status"].is_null())
    {
        definition["status"]["storedVersions"] = json!([version]);
    }
}

fn complete_spec(spec: &mut Map<String, Value>) {
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut fill = |name: &str, value: String| {
            let is_set = |value: &Value| value.as_str().is_none_or(|text| !text.is_empty());
            if !value.is_empty() && !names.get(name).is_some_and(is_set) {
                names.insert(name.to_owned(), value.into());
            }
        };
        let list = if kind.is_empty() { String::new() } else { format!("{kind}List") };
        fill("singular", kind.to_lowercase());
        fill("listKind", list);
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
            normalize_schema(schema);
        }
    }
}

/// Drops the empty fields of a schema, and writes whole floats as integers.
fn normalize_schema(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.retain(|name, value| {
        let is_omitted = OMITTED_IF_EMPTY.contains(&name.as_str()) && is_empty(name, value);
        !value.is_null() && !is_omitted
    });
    for (name, value) in fields {
        match name.as_str() {
            "properties" | "patternProperties" | "definitions" | "dependencies" => {
                let inside = value.as_object_mut().into_iter().flat_map(Map::values_mut);
                inside.for_each(normalize_schema);
            }
            "allOf" | "anyOf" | "oneOf" => {
                value.as_array_mut().into_iter().flatten().for_each(normalize_schema);
            }
            "items" | "additionalProperties" | "additionalItems" | "not" => {
                normalize_schema(value);
            }
            "x-kubernetes-validations" => {
                value.as_array_mut().into_iter().flatten().for_each(normalize_rule);
            }
            _ => normalize_numbers(value),
        }
    }
}

fn normalize_rule(rule: &mut Value) {
    let Some(fields) = rule.as_object_mut() else { return };
    fields.retain(|name, value| match name.as_str() {
        "message" | "messageExpression" | "fieldPath" => value.as_str() != Some(""),
        _ => !value.is_null(),
    });
}

/// Whether a field has its zero value. A default may be one.
fn is_empty(name: &str, value: &Value) -> bool {
    match value {
        _ if matches!(name, "default" | "example") => value.is_null(),
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_completed() {
        let mut definition = json!({"spec": {
            "names": {"plural": "cars", "kind": "RaceCar"},
            "versions": [{"name": "v1", "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "nullable": false, "required": [], "description": "",
                "properties": {
                    "type": {"type": "integer", "maximum": 5.0, "default": 0},
                    "a": {"type": "object", "properties": {}, "default": {}},
                },
            }}}],
        }});
        complete(&mut definition);
        assert_eq!(
            definition,
            json!({
                "spec": {
                    "conversion": {"strategy": "None"},
                    "names": {
                        "plural": "cars", "kind": "RaceCar", "singular": "racecar",
                        "listKind": "RaceCarList",
                    },
                    "versions": [{"name": "v1", "storage": true, "schema": {"openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "type": {"type": "integer", "maximum": 5, "default": 0},
                            "a": {"type": "object", "default": {}},
                        },
                    }}}],
                },
                "status": {"storedVersions": ["v1"]},
            })
        );
    }

    #[test]
    fn what_is_malformed_stays() {
        for malformed in [
            json!({}),
            json!({"spec": 1}),
            json!({"spec": {"names": 1, "versions": [1]}, "status": 2}),
        ] {
            let mut completed = malformed.clone();
            complete(&mut completed);
            assert_eq!(completed["status"], malformed["status"]);
        }
    }
}
