//! Checks the keywords of a schema and of all schemas inside it.

use serde_json::Value;

use super::schema_view::{SchemaView, child, item_path, property_path};
use super::{keywords, rules};
use crate::object_limits::MAX_FINDINGS;
use crate::schema::FieldError;

/// Where a schema stands.
#[derive(Debug, Clone, Default)]
pub(super) struct SchemaPlace {
    /// Why there may be no default here.
    pub(super) no_default: Option<&'static str>,
    /// Inside the metadata or type of an object.
    pub(super) is_metadata: bool,
    /// The part of the schema in which an old value cannot be found again.
    pub(super) uncorrelatable: Option<String>,
    /// Whether rules are compiled.
    pub(super) has_rules: bool,
}

/// What Kubernetes allows at the root if the status is a subresource: the schema of the status stands for itself then.
const ALLOWED_AT_ROOT: [&str; 22] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// The same list as messages show it.
const ALLOWED_NAMES: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength \
    MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example \
    XPreserveUnknownFields XValidations]";

/// Reports keywords that may not stand at the root if the status is a subresource.
pub(super) fn root_errors(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let view = SchemaView::new(schema);
    if !view.type_().is_empty() && view.type_() != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(child(path, "type"), view.type_(), detail));
        return;
    }
    let mut keywords = schema.as_object().into_iter().flat_map(|fields| fields.keys());
    if keywords.any(|keyword| !ALLOWED_AT_ROOT.contains(&keyword.as_str())) {
        let detail = format!(
            "only {ALLOWED_NAMES} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        errors.push(FieldError::invalid(path, schema.clone(), detail));
    }
}

/// Whether there is a keyword somewhere without which the structure cannot be checked.
pub(super) fn has_unsupported_keywords(schema: &Value) -> bool {
    let view = SchemaView::new(schema);
    let unsupported = [
        "id",
        "$schema",
        "$ref",
        "patternProperties",
        "dependencies",
        "additionalItems",
        "definitions",
    ];
    unsupported.iter().any(|keyword| view.get(keyword).is_some())
        || view.get("items").is_some_and(Value::is_array)
        || view.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false))
        || inside(view).any(|schema| has_unsupported_keywords(schema.json()))
}

fn inside(view: SchemaView<'_>) -> impl Iterator<Item = SchemaView<'_>> {
    let named = view.properties().map(|(_, schema)| schema);
    let single = ["items", "additionalProperties", "not"];
    let single = single.into_iter().filter_map(move |name| view.schema(name));
    let listed = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(move |name| view.schemas(name));
    named.chain(single).chain(listed)
}

/// Reports what is wrong with the keywords of a schema.
pub(super) fn validate(schema: &Value, path: &str, has_rules: bool, errors: &mut Vec<FieldError>) {
    let place = SchemaPlace { has_rules, ..SchemaPlace::default() };
    walk(SchemaView::new(schema), path, &place, true, errors);
}

fn walk(
    schema: SchemaView<'_>,
    path: &str,
    place: &SchemaPlace,
    is_root: bool,
    errors: &mut Vec<FieldError>,
) {
    if errors.len() >= MAX_FINDINGS {
        return;
    }
    let before = errors.len();
    keywords::standard(schema, path, place, errors);
    additional(schema, path, place, errors);
    for (name, property) in schema.properties() {
        let mut inner = place.clone();
        let is_object = is_root || schema.flag("x-kubernetes-embedded-resource");
        if is_object && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            inner.is_metadata = true;
            if is_root {
                inner.no_default = Some(match name.as_str() {
                    "metadata" => "in top-level metadata",
                    "kind" => "in top-level kind",
                    _ => "in top-level apiVersion",
                });
            }
        }
        walk(property, &property_path(path, name), &inner, false, errors);
    }
    let without_rules = SchemaPlace { has_rules: false, ..place.clone() };
    if let Some(not) = schema.schema("not") {
        walk(not, &child(path, "not"), &without_rules, false, errors);
    }
    for keyword in ["allOf", "oneOf", "anyOf"] {
        for (index, part) in schema.schemas(keyword).enumerate() {
            walk(part, &item_path(path, keyword, index), &without_rules, false, errors);
        }
    }
    if let Some(items) = schema.schema("items") {
        let mut inner = place.clone();
        if schema.text("x-kubernetes-list-type") != "map" && inner.uncorrelatable.is_none() {
            inner.uncorrelatable = Some(path.to_owned());
        }
        walk(items, &child(path, "items"), &inner, false, errors);
    }
    keywords::extensions(schema, path, errors);
    rules::validate(schema, path, errors);
    if errors.len() == before && place.has_rules {
        rules::compile(schema, path, place, errors);
    }
}

fn additional(
    schema: SchemaView<'_>,
    path: &str,
    place: &SchemaPlace,
    errors: &mut Vec<FieldError>,
) {
    let Some(rest) = schema.get("additionalProperties") else { return };
    let path = child(path, "additionalProperties");
    if schema.properties().next().is_some() && *rest != Value::Bool(true) {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(path.as_str(), detail));
    }
    let mut inner = place.clone();
    if place.is_metadata {
        inner.no_default = Some("inside additionalProperties applying to object metadata");
    }
    if rest.is_object() {
        walk(SchemaView::new(rest), &path, &inner, false, errors);
    }
}
