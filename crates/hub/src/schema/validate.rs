//! Validates the shape of an object: types, required fields, alternatives.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::node::{AdditionalProperties, SchemaNode};
use super::{FieldError, FieldReason, display_path, quote, value_checks};
use crate::object_limits::MAX_FINDINGS;

/// Reports what does not fit. Parts that equal the same part of `old` are skipped.
pub(super) fn validate(root: &SchemaNode, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut outcome = ValidationResult::default();
    walk(root, new, old, "", &mut outcome);
    outcome.errors
}

/// Like [`validate`] for `status` alone. kube-apiserver gives the full field path, but not in the
/// detail text.
pub(super) fn validate_status(
    root: &SchemaNode,
    new: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let (Some(node), Some(status)) = (root.properties.get("status"), new.get("status")) else {
        return Vec::new();
    };
    let mut errors = validate(node, status, old.and_then(|old| old.get("status")));
    for error in &mut errors {
        error.field = match error.field.as_str() {
            "<nil>" => "status".to_owned(),
            inside => super::child_path("status", inside),
        };
    }
    errors
}

/// The errors found, and the number of checks passed: among alternatives, the one that passed most
/// was meant.
#[derive(Default)]
pub(super) struct ValidationResult {
    pub(super) errors: Vec<FieldError>,
    passed: usize,
}

impl ValidationResult {
    fn merge(&mut self, other: ValidationResult) {
        self.errors.extend(other.errors);
        self.passed += other.passed;
    }
}

fn walk(
    node: &SchemaNode,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    out: &mut ValidationResult,
) {
    if old == Some(value) || out.errors.len() >= MAX_FINDINGS {
        return;
    }
    type_error(node, value, path, out);
    if value.is_null() {
        value_checks::check_enum(node, value, path, out);
        return;
    }
    validate_alternatives(node, value, path, out);
    match value {
        Value::String(text) => {
            value_checks::check_text(node, text, path, out);
            value_checks::check_format(node, text, path, out);
        }
        Value::Number(number) => value_checks::check_number(node, number, value, path, out),
        Value::Array(items) => validate_list(node, items, old, path, out),
        _ => {}
    }
    value_checks::check_enum(node, value, path, out);
    if let Value::Object(fields) = value {
        validate_object(node, fields, old, path, out);
    }
    out.passed += 1;
}

/// The JSON type of a value.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn type_error(node: &SchemaNode, value: &Value, path: &str, out: &mut ValidationResult) {
    if node.types.is_empty() || type_matches(node, value) {
        out.passed += 1;
        return;
    }
    let (wanted, found) = match (&node.format, value) {
        (Some(format), Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
            (format.name().to_owned(), format_of(value))
        }
        _ => (node.types.join(","), type_of(value)),
    };
    let detail = format!("{path} in body must be of type {wanted}: {}", quote(found));
    out.errors.push(FieldError::new(
        display_path(path.trim_start_matches('.')),
        FieldReason::TypeInvalid,
        Some(found.into()),
        detail,
    ));
}

/// The name of the expected type in a message: the format, if there is one.
fn format_of(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        _ => "",
    }
}

fn type_matches(node: &SchemaNode, value: &Value) -> bool {
    let has = |name: &str| node.types.iter().any(|type_| type_ == name);
    match value {
        Value::Null => node.nullable,
        // A format replaces the type of strings and lists.
        Value::String(_) | Value::Array(_)
            if node.format.is_some() && !has("integer") && !has("number") =>
        {
            true
        }
        Value::Number(number) if number.is_f64() => {
            has("number") || has("integer") && number.as_f64().is_some_and(is_integral)
        }
        Value::Number(_) => has("integer") || has("number"),
        other => has(type_of(other)),
    }
}

/// Whether a float is an integer that all JSON parsers agree on. kube-apiserver is inexact about
/// large ones.
fn is_integral(float: f64) -> bool {
    const MAX: f64 = 9_007_199_254_740_991.0;
    const TOLERANCE: f64 = 1e-9;
    let near = float.trunc();
    let off = (float - near).abs();
    float.abs() <= MAX && (off == 0.0 || near != 0.0 && off / (float + near).abs() < TOLERANCE)
}

fn validate_list(
    node: &SchemaNode,
    items: &[Value],
    old: Option<&Value>,
    path: &str,
    out: &mut ValidationResult,
) {
    if let Some(part) = &node.items {
        let before = old_items(node, old);
        for (index, item) in items.iter().enumerate() {
            let old = node.item_key(item).and_then(|key| before.get(&key).copied());
            walk(part, item, old, &format!("{path}[{index}]"), out);
        }
    }
    value_checks::check_item_count(node, items.len(), path, out);
}

/// The old items by their keys. Only map lists correlate items.
pub(super) fn old_items<'a>(
    node: &SchemaNode,
    old: Option<&'a Value>,
) -> HashMap<String, &'a Value> {
    let items = old.and_then(Value::as_array).into_iter().flatten();
    let mut found = HashMap::new();
    for item in items {
        if let Some(key) = node.item_key(item) {
            found.entry(key).or_insert(item);
        }
    }
    found
}

/// The same field of the old object.
pub(super) fn old_field<'a>(old: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    old?.get(name)
}

fn validate_object(
    node: &SchemaNode,
    fields: &Map<String, Value>,
    old: Option<&Value>,
    path: &str,
    out: &mut ValidationResult,
) {
    value_checks::check_field_count(node, fields.len(), path, out);
    for (name, value) in fields {
        if node.properties.contains_key(name) {
            continue;
        }
        match &node.additional {
            AdditionalProperties::Any(false) => {
                let detail = format!("{path}.{name} in body is a forbidden property");
                out.errors.push(FieldError::invalid(display_path(path), name.as_str(), detail));
            }
            AdditionalProperties::Schema(part) => {
                walk(part, value, old_field(old, name), &format!("{path}.{name}"), out);
            }
            AdditionalProperties::Any(true) | AdditionalProperties::Unset => {}
        }
    }
    for (name, part) in &node.properties {
        if let Some(value) = fields.get(name) {
            walk(part, value, old_field(old, name), &super::child_path(path, name), out);
        }
    }
    for name in &node.required {
        if !fields.contains_key(name) {
            out.errors.push(FieldError::required(super::child_path(path, name), ""));
        }
    }
}

fn validate_alternatives(node: &SchemaNode, value: &Value, path: &str, out: &mut ValidationResult) {
    let whole = |what: String| FieldError::invalid("<nil>", "", format!("{} {what}", quote(path)));
    let try_all = |parts: &[SchemaNode]| -> Vec<ValidationResult> {
        let outcome = |part: &SchemaNode| {
            let mut outcome = ValidationResult::default();
            walk(part, value, None, path, &mut outcome);
            outcome
        };
        parts.iter().map(outcome).collect()
    };
    if !node.any_of.is_empty() {
        let results = try_all(&node.any_of);
        if results.iter().all(|result| !result.errors.is_empty()) {
            out.errors.push(whole("must validate at least one schema (anyOf)".into()));
            out.merge(closest_alternative(results));
        }
    }
    if !node.one_of.is_empty() {
        let results = try_all(&node.one_of);
        let valid = results.iter().filter(|result| result.errors.is_empty()).count();
        if valid == 0 {
            let what = "must validate one and only one schema (oneOf). Found none valid";
            out.errors.push(whole(what.into()));
            out.merge(closest_alternative(results));
        } else if valid > 1 {
            out.errors.push(whole(format!(
                "must validate one and only one schema (oneOf). Found {valid} valid alternatives"
            )));
        }
    }
    if !node.all_of.is_empty() {
        let results = try_all(&node.all_of);
        let valid = results.iter().filter(|result| result.errors.is_empty()).count();
        let all = results.len();
        results.into_iter().for_each(|result| out.merge(result));
        if valid < all {
            let none = if valid == 0 { ". None validated" } else { "" };
            out.errors.push(whole(format!("must validate all the schemas (allOf){none}")));
        }
    }
    if let Some(not) = &node.not {
        let mut outcome = ValidationResult::default();
        walk(not, value, None, path, &mut outcome);
        if outcome.errors.is_empty() {
            out.errors.push(whole("must not validate the schema (not)".into()));
        }
    }
}

/// The alternative that passed the most checks; the first of equals.
fn closest_alternative(results: Vec<ValidationResult>) -> ValidationResult {
    let mut best = ValidationResult::default();
    let mut first = true;
    for result in results {
        if first || result.passed > best.passed {
            best = result;
            first = false;
        }
    }
    best
}
