//! Whether a schema is structural: it says of every field what it is, outside of alternatives and conditions.

use serde_json::Value;

use super::completeness;
use super::schema_view::{SchemaView, child, item_path, property_path};
use crate::schema::{self, FieldError};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Root,
    Item,
    Field,
}

/// Returns why a schema is not structural, in order.
pub(super) fn validate(schema: &Value, path: &str) -> Vec<FieldError> {
    let schema = SchemaView::new(schema);
    let mut errors = Vec::new();
    invariants(schema, Level::Root, path, &mut errors);
    completeness::validate(schema, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn invariants(schema: SchemaView<'_>, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let type_ = schema.type_();
    if type_ == "array" && schema.get("items").is_none() {
        errors.push(FieldError::required(child(path, "items"), "must be specified"));
    }
    if let Some(items) = schema.schema("items") {
        invariants(items, Level::Item, &child(path, "items"), errors);
    }
    for (name, property) in schema.properties() {
        invariants(property, Level::Field, &property_path(path, name), errors);
    }
    let additional = child(path, "additionalProperties");
    if schema.get("additionalProperties").is_some() && level == Level::Root {
        errors.push(FieldError::forbidden(additional.as_str(), "must not be used at the root"));
    }
    if let Some(rest) = schema.schema("additionalProperties") {
        invariants(rest, Level::Field, &additional, errors);
    }
    extensions(schema, path, errors);
    let skip_any_of = is_int_or_string(schema);
    let skip_first = schema.schemas("allOf").next().is_some_and(is_int_or_string);
    value_validation(schema, (skip_any_of, skip_first), path, errors);
    type_errors(schema, level, path, errors);
    metadata_errors(schema, level, path, errors);
}

/// Whether the alternatives are exactly those of a field that may be an integer or a string.
fn is_int_or_string(schema: SchemaView<'_>) -> bool {
    let is_type = |part: &Value, name: &str| {
        part.as_object().is_some_and(|fields| fields.len() == 1) && part["type"] == name
    };
    matches!(schema.list("anyOf"), [a, b] if is_type(a, "integer") && is_type(b, "string"))
}

fn extensions(schema: SchemaView<'_>, path: &str, errors: &mut Vec<FieldError>) {
    if !schema.flag("x-kubernetes-int-or-string") {
        return;
    }
    for name in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if schema.flag(name) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(child(path, name), true, detail));
        }
    }
}

fn type_errors(schema: SchemaView<'_>, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let (type_, place) = (schema.type_(), child(path, "type"));
    let embedded = schema.flag("x-kubernetes-embedded-resource");
    let wanted = "must be object if x-kubernetes-embedded-resource is true";
    if embedded && type_.is_empty() {
        errors.push(FieldError::required(place.as_str(), wanted));
    } else if embedded && type_ != "object" {
        errors.push(FieldError::invalid(place.as_str(), type_, wanted));
    } else if type_.is_empty()
        && !schema.flag("x-kubernetes-int-or-string")
        && !schema.preserves_unknown()
    {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(place.as_str(), detail));
    }
    if embedded && schema.get("additionalProperties").is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(child(path, "additionalProperties"), detail));
    }
    if level == Level::Root && !type_.is_empty() && type_ != "object" {
        errors.push(FieldError::invalid(place, type_, "must be object at the root"));
    }
    if embedded && !schema.preserves_unknown() && schema.properties().next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(child(path, "properties"), detail));
    }
}

fn metadata_errors(schema: SchemaView<'_>, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let is_resource = level == Level::Root || schema.flag("x-kubernetes-embedded-resource");
    for name in ["kind", "apiVersion"] {
        if let Some(property) = schema.property(name).filter(|_| is_resource)
            && property.type_() != "string"
        {
            let place = child(&property_path(path, name), "type");
            errors.push(FieldError::invalid(place, property.type_(), "must be string"));
        }
    }
    let Some(metadata) = schema.property("metadata") else { return };
    let place = property_path(path, "metadata");
    if is_resource && metadata.type_() != "object" {
        errors.push(FieldError::invalid(child(&place, "type"), metadata.type_(), "must be object"));
    }
    let is_name = |name: &str| name == "name" || name == "generateName";
    let names_only = metadata.properties().all(|(name, _)| is_name(name));
    let rest = metadata.json().as_object().into_iter().flat_map(|fields| fields.keys());
    let mut rest = rest.filter(|key| !matches!(key.as_str(), "type" | "default"));
    if level == Level::Root && !(rest.all(|key| key == "properties") && names_only) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(place, detail));
    }
}

fn value_validation(
    schema: SchemaView<'_>,
    (skip_any_of, skip_first_all_of): (bool, bool),
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if !skip_any_of {
        for (index, part) in schema.schemas("anyOf").enumerate() {
            nested(part, false, &item_path(path, "anyOf", index), errors);
        }
    }
    for (index, part) in schema.schemas("allOf").enumerate() {
        nested(part, skip_first_all_of && index == 0, &item_path(path, "allOf", index), errors);
    }
    for (index, part) in schema.schemas("oneOf").enumerate() {
        nested(part, false, &item_path(path, "oneOf", index), errors);
    }
    if let Some(not) = schema.schema("not") {
        nested(not, false, &child(path, "not"), errors);
    }
    let pattern = schema.text("pattern");
    if let Err(why) = schema::check_pattern(pattern) {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(child(path, "pattern"), pattern, detail));
    }
}

/// A keyword that has no place in an alternative, and what is said of it.
const NOT_NESTED: [(&str, &str); 11] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

/// Checks a part of an alternative or condition.
fn nested(schema: SchemaView<'_>, skip_any_of: bool, path: &str, errors: &mut Vec<FieldError>) {
    value_validation(schema, (skip_any_of, false), path, errors);
    if let Some(items) = schema.schema("items") {
        nested(items, false, &child(path, "items"), errors);
    }
    for (name, property) in schema.properties() {
        nested(property, false, &property_path(path, name), errors);
    }
    for (keyword, detail) in NOT_NESTED {
        // Go treats `additionalProperties: false` like nothing.
        let is_nothing =
            keyword == "additionalProperties" && schema.get(keyword) == Some(&Value::Bool(false));
        if schema.get(keyword).is_some() && !is_nothing {
            errors.push(FieldError::forbidden(child(path, keyword), detail));
        }
    }
    for keyword in ["x-kubernetes-list-type", "x-kubernetes-map-type"] {
        if schema.get(keyword).is_some() {
            let detail = "must be undefined to be structural";
            errors.push(FieldError::forbidden(child(path, keyword), detail));
        }
    }
    if schema.property("metadata").is_some() {
        let detail = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(property_path(path, "metadata"), detail));
    }
}
