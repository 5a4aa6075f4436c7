//! Converts schemas between the dialects of schemars, OpenAPI 3 and OpenAPI 2.

use serde_json::{Map, Value, json};

const REFERENCE_PREFIX: &str = "#/components/schemas/";

/// Turns a reference with siblings into `allOf`, as OpenAPI requires.
pub(super) fn wrap_references(schema: &mut Value) {
    for_each_object(schema, &mut |fields| {
        // JSONSchemaProps has a property named `$ref`; a reference is a string.
        if fields.len() > 1
            && fields.get("$ref").is_some_and(Value::is_string)
            && let Some(reference) = fields.remove("$ref")
        {
            fields.insert("allOf".to_owned(), json!([{"$ref": reference}]));
        }
    });
}

/// Collects the names that a schema refers to.
pub(super) fn collect_references<'a>(schema: &'a Value, into: &mut Vec<&'a str>) {
    match schema {
        Value::Object(fields) => {
            let reference = fields.get("$ref").and_then(Value::as_str);
            into.extend(reference.and_then(|text| text.strip_prefix(REFERENCE_PREFIX)));
            fields.values().for_each(|value| collect_references(value, into));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, into)),
        _ => {}
    }
}

/// Converts to OpenAPI 2: other references, and without the keywords that it lacks.
pub(super) fn to_v2(schemas: &mut Value) {
    for_each_object(schemas, &mut |fields| {
        if let Some(Value::Array(parts)) = fields.get("allOf")
            && let Some(reference) = parts.first().and_then(|part| part.get("$ref")).cloned()
        {
            fields.insert("$ref".to_owned(), reference);
        }
        if let Some(Value::String(reference)) = fields.get_mut("$ref") {
            *reference = reference.replace(REFERENCE_PREFIX, "#/definitions/");
        }
        // A property with such a name is an object; the keyword is a list or a flag.
        for keyword in ["anyOf", "oneOf", "allOf"] {
            if fields.get(keyword).is_some_and(Value::is_array) {
                fields.remove(keyword);
            }
        }
        if fields.get("nullable").is_some_and(Value::is_boolean) {
            fields.remove("nullable");
        }
    });
}

/// Calls a function on every object in a schema, innermost first.
fn for_each_object(value: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(|value| for_each_object(value, change));
            change(fields);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| for_each_object(item, change)),
        _ => {}
    }
}
