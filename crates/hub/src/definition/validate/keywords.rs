//! Checks the keywords of one schema: those of OpenAPI, and the extensions of Kubernetes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::openapi::SchemaPlace;
use super::schema_view::{SchemaView, child, property_path};
use crate::schema::FieldError;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Checks the keywords of OpenAPI.
pub(super) fn standard(
    schema: SchemaView<'_>,
    path: &str,
    place: &SchemaPlace,
    errors: &mut Vec<FieldError>,
) {
    let type_ = schema.type_();
    if !type_.is_empty() && !TYPES.contains(&type_) {
        errors.push(FieldError::not_supported(child(path, "type"), type_, &TYPES));
    }
    let mut forbid = |keyword: &str, detail: String| {
        errors.push(FieldError::forbidden(child(path, keyword), detail));
    };
    if schema.get("default").is_some()
        && let Some(reason) = place.no_default
    {
        forbid("default", format!("must not be set {reason}"));
    }
    let unsupported =
        ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
    for keyword in unsupported.into_iter().filter(|keyword| schema.get(keyword).is_some()) {
        forbid(keyword, format!("{keyword} is not supported"));
    }
    if type_ == "null" {
        forbid("type", "type cannot be set to null, use nullable as an alternative".to_owned());
    }
    if schema.get("items").is_some_and(Value::is_array) {
        forbid("items", "items must be a schema object and not an array".to_owned());
    }
    if place.is_metadata && schema.flag("x-kubernetes-embedded-resource") {
        let detail = "must not be used inside of resource meta";
        forbid("x-kubernetes-embedded-resource", detail.to_owned());
    }
    if schema.flag("uniqueItems") {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        forbid("uniqueItems", detail.to_owned());
    }
}

/// Checks the extensions of Kubernetes.
pub(super) fn extensions(schema: SchemaView<'_>, path: &str, errors: &mut Vec<FieldError>) {
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if schema.get(preserve) == Some(&Value::Bool(false)) {
        errors.push(FieldError::invalid(child(path, preserve), false, "must be true or undefined"));
    }
    let map_type = "x-kubernetes-map-type";
    if schema.get(map_type).is_some() {
        check_type(schema, path, "object", map_type, errors);
        let known = ["atomic", "granular"];
        if !known.contains(&schema.text(map_type)) {
            let place = child(path, map_type);
            errors.push(FieldError::not_supported(place, schema.text(map_type), &known));
        }
    }
    list_type(schema, path, errors);
    list_keys(schema, path, errors);
    list_items(schema, path, errors);
}

fn check_type(
    schema: SchemaView<'_>,
    path: &str,
    wanted: &str,
    keyword: &str,
    errors: &mut Vec<FieldError>,
) {
    let detail = format!("must be {wanted} if {keyword} is specified");
    match schema.type_() {
        "" => errors.push(FieldError::required(child(path, "type"), detail)),
        type_ if type_ != wanted => {
            errors.push(FieldError::invalid(child(path, "type"), type_, detail));
        }
        _ => {}
    }
}

const LIST_TYPE: &str = "x-kubernetes-list-type";
const LIST_KEYS: &str = "x-kubernetes-list-map-keys";

fn list_type(schema: SchemaView<'_>, path: &str, errors: &mut Vec<FieldError>) {
    if schema.get(LIST_TYPE).is_none() {
        return;
    }
    let list_type = schema.text(LIST_TYPE);
    if schema.type_() != "array" {
        check_type(schema, path, "array", LIST_TYPE, errors);
    } else if list_type == "set"
        && let Some(items) = schema.schema("items")
    {
        let keyword = match items.type_() {
            "array" if !matches!(items.text(LIST_TYPE), "" | "atomic") => Some(LIST_TYPE),
            "object" if items.text("x-kubernetes-map-type") != "atomic" => {
                Some("x-kubernetes-map-type")
            }
            _ => None,
        };
        if let Some(keyword) = keyword {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let value = items.get(LIST_TYPE).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(child(&child(path, "items"), keyword), value, detail));
        }
    }
    let known = ["atomic", "set", "map"];
    if !known.contains(&list_type) {
        errors.push(FieldError::not_supported(child(path, LIST_TYPE), list_type, &known));
    }
}

fn list_keys(schema: SchemaView<'_>, path: &str, errors: &mut Vec<FieldError>) {
    let keys = schema.texts(LIST_KEYS);
    let is_map = schema.text(LIST_TYPE) == "map";
    if !keys.is_empty() && !is_map {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match schema.text(LIST_TYPE) {
            "" => FieldError::required(child(path, LIST_TYPE), detail),
            other => FieldError::invalid(child(path, LIST_TYPE), other, detail),
        });
    }
    if !is_map {
        return;
    }
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(child(path, LIST_KEYS), detail));
    }
    let Some(items) = schema.schema("items") else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(child(path, "items"), detail));
        return;
    };
    let place = child(path, "items");
    if items.type_() != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(child(&place, "type"), items.type_(), detail));
        return;
    }
    let mut seen = BTreeSet::new();
    for key in &keys {
        let list = || Value::from(keys.clone());
        match items.property(key).map(SchemaView::type_) {
            Some("array" | "object") => {
                let detail =
                    "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let place = child(&property_path(&place, key), "type");
                errors.push(FieldError::invalid(place, items.type_(), detail));
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(child(path, LIST_KEYS), list(), detail));
            }
        }
        if !seen.insert(*key) {
            let detail = "must not contain duplicate entries";
            errors.push(FieldError::invalid(child(path, LIST_KEYS), list(), detail));
        }
    }
}

/// The items of sets and maps, and the keys of maps, are always there.
fn list_items(schema: SchemaView<'_>, path: &str, errors: &mut Vec<FieldError>) {
    let list_type = schema.text(LIST_TYPE);
    let Some(items) = schema.schema("items").filter(|_| matches!(list_type, "set" | "map")) else {
        return;
    };
    let place = child(path, "items");
    if items.flag("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(child(&place, "nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    let required = items.texts("required");
    for key in schema.texts(LIST_KEYS) {
        let Some(property) = items.property(key) else { continue };
        let place = property_path(&place, key);
        if !required.contains(&key) && property.get("default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                          property";
            errors.push(FieldError::required(child(&place, "default"), detail));
        }
        if property.flag("nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(child(&place, "nullable"), detail));
        }
    }
}
