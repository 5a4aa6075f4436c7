//! Schemas from one dialect to another.

use serde_json::{Map, Value, json};

const REFERENCE_PREFIX: &str = "#/components/schemas/";

/// A reference with anything beside it becomes `allOf`, as OpenAPI wants it.
pub(super) fn wrap_references(schema: &mut Value) {
    for_each_object(schema, &mut |fields| {
        // The schema of schemas has a property of this name; a reference is a text.
        if fields.len() > 1
            && fields.get("$ref").is_some_and(Value::is_string)
            && let Some(reference) = fields.remove("$ref")
        {
            fields.insert("allOf".to_owned(), json!([{"$ref": reference}]));
        }
    });
}

/// The names that a schema refers to.
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

/// Version 2: other references, and none of the keywords that it lacks.
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
        // A property of such a name is an object; the keyword is a list or a flag.
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

/// Calls a function on every object in a schema, insides first.
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

/// A schema with all references replaced by what they name; one that names itself is left open.
pub(super) fn inline_references(
    schema: &Value,
    all: &Map<String, Value>,
    within: &mut Vec<String>,
) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let parts = fields.get("allOf").and_then(Value::as_array);
    let reference = fields.get("$ref").or_else(|| parts?.first()?.get("$ref"));
    if let Some(name) =
        reference.and_then(Value::as_str).and_then(|text| text.strip_prefix(REFERENCE_PREFIX))
    {
        let found = all.get(name).filter(|_| !within.iter().any(|one| one == name));
        let Some(found) = found else {
            return json!({"x-kubernetes-preserve-unknown-fields": true});
        };
        within.push(name.to_owned());
        let schema = inline_references(found, all, within);
        within.pop();
        return schema;
    }
    let mut out = Map::new();
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("description" | "required", _) => {}
            ("properties", Value::Object(properties)) => {
                let inside = properties
                    .iter()
                    .map(|(name, value)| (name.clone(), inline_references(value, all, within)))
                    .collect::<Map<_, _>>();
                out.insert(key.clone(), inside.into());
            }
            ("items" | "additionalProperties", value) => {
                out.insert(key.clone(), inline_references(value, all, within));
            }
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    let open =
        !["properties", "additionalProperties", "items"].iter().any(|k| out.contains_key(*k));
    let is_object = out.get("type").is_none_or(|type_| type_ == "object");
    if open && is_object && !out.contains_key("x-kubernetes-int-or-string") {
        out.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
    }
    out.into()
}
