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

/// Converts to OpenAPI 2: other references, and without what it lacks. Clients reject values that do not fit a type, so
/// kube-apiserver also drops the types that say too little.
pub(super) fn to_v2(schemas: &mut Value) {
    // Before the properties lose the mark.
    for_each_object(schemas, &mut |fields| {
        let Some(properties) = fields.get("properties").cloned() else { return };
        if let Some(Value::Array(required)) = fields.get_mut("required") {
            required.retain(|name| {
                name.as_str().is_none_or(|name| properties[name]["nullable"] != true)
            });
        }
    });
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
        let is_nullable = fields.get("nullable").filter(|mark| mark.is_boolean()).cloned();
        if is_nullable.is_some() {
            fields.remove("nullable");
        }
        if is_nullable == Some(Value::Bool(true)) {
            fields.retain(|keyword, _| !matches!(&**keyword, "type" | "items" | "properties"));
        }
        // An empty list of required fields is invalid.
        if fields.get("required").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            fields.remove("required");
        }
        if fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
            fields.retain(|keyword, _| !matches!(&**keyword, "items" | "properties"));
        }
    });
    remove_not(schemas);
}

/// Removes the keyword `not`. A property of that name is a schema too: they differ only by their place.
fn remove_not(schemas: &mut Value) {
    fn from_schema(schema: &mut Value) {
        let Some(fields) = schema.as_object_mut() else { return };
        fields.remove("not");
        for keyword in ["items", "additionalProperties"] {
            fields.get_mut(keyword).into_iter().for_each(from_schema);
        }
        let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
        properties.into_iter().flat_map(Map::values_mut).for_each(from_schema);
    }
    schemas.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(from_schema);
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
