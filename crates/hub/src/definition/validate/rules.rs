//! Checks the rules (`x-kubernetes-validations`) of one schema.

use serde_json::Value;

use super::columns::resolve;
use super::openapi::SchemaPlace;
use super::schema_view::SchemaView;
use crate::schema::{FieldError, cel_field_name, check_rule};

const KEYWORD: &str = "x-kubernetes-validations";
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

fn has_newlines(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

/// Checks the form of the rules.
pub(super) fn validate(schema: SchemaView<'_>, path: &str, errors: &mut Vec<FieldError>) {
    for (index, rule) in schema.list(KEYWORD).iter().enumerate() {
        let text = |field: &str| rule[field].as_str().unwrap_or_default();
        let place = |field: &str| format!("{path}.{KEYWORD}[{index}].{field}");
        let is_blank = |field: &str| !text(field).is_empty() && text(field).trim().is_empty();
        let blank = "must be non-empty if specified";
        let message = text("message");
        if text("rule").trim().is_empty() {
            errors.push(FieldError::required(place("rule"), "rule is not specified"));
        } else if is_blank("message") {
            errors.push(FieldError::invalid(place("message"), message, blank));
        } else if has_newlines(message.trim()) {
            let detail = "must not contain line breaks";
            errors.push(FieldError::invalid(place("message"), message, detail));
        } else if has_newlines(text("rule").trim()) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(place("message"), detail));
        }
        if is_blank("messageExpression") {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(place("messageExpression"), detail));
        }
        if let Some(reason) = rule["reason"].as_str()
            && !REASONS.contains(&reason)
        {
            errors.push(FieldError::not_supported(place("reason"), reason, &REASONS));
        }
        let field_path = text("fieldPath");
        if is_blank("fieldPath") {
            errors.push(FieldError::invalid(place("fieldPath"), field_path, blank));
        }
        if has_newlines(field_path) {
            let detail = "must not contain line breaks";
            errors.push(FieldError::invalid(place("fieldPath"), field_path, detail));
        }
        if !field_path.is_empty() && resolve(schema, field_path, true).is_err() {
            errors.push(FieldError::invalid(
                place("fieldPath"),
                field_path,
                "must be a valid path",
            ));
        }
    }
}

/// Returns the first field of a path that the schema does not know.
fn unknown_field<'a>(schema: SchemaView<'_>, path: &'a [String]) -> Option<&'a str> {
    let mut here = schema;
    for (depth, field) in path.iter().enumerate() {
        if matches!(here.type_(), "string" | "integer" | "number" | "boolean") {
            return Some(field);
        }
        let is_open = here.type_() != "object"
            || here.preserves_unknown()
            || here.get("additionalProperties").is_some();
        let mut properties = here.properties();
        match properties.find(|(name, _)| cel_field_name(name) == *field) {
            Some((_, property)) => here = property,
            None if is_open => return None,
            // Every object has these, whatever its schema says.
            None if depth == 0 && matches!(field.as_str(), "metadata" | "kind" | "apiVersion") => {
                return None;
            }
            None => return Some(field),
        }
        if field == "metadata" {
            return None;
        }
    }
    None
}

/// Compiles the rules.
pub(super) fn compile(
    schema: SchemaView<'_>,
    path: &str,
    place: &SchemaPlace,
    errors: &mut Vec<FieldError>,
) {
    for (index, rule) in schema.list(KEYWORD).iter().enumerate() {
        let at = |field: &str| format!("{path}.{KEYWORD}[{index}].{field}");
        let checked = check_rule(rule);
        let unknown = || {
            let mut paths = checked.fields.iter();
            let name = paths.find_map(|path| unknown_field(schema, path))?;
            Some(format!("compilation failed: undefined field '{name}'"))
        };
        if let Some(why) = checked.rule_error.clone().or_else(unknown) {
            errors.push(FieldError::invalid(at("rule"), rule.clone(), why));
        }
        if let Some(why) = checked.message_error {
            errors.push(FieldError::invalid(at("messageExpression"), rule.clone(), why));
        }
        match (&place.uncorrelatable, checked.uses_old_self) {
            (Some(inside), true) => {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {inside}"
                );
                let text = rule["rule"].clone();
                errors.push(FieldError::invalid(at("rule"), text, detail));
            }
            (_, false) if rule["optionalOldSelf"] != Value::Null => {
                let detail = "may not be set if oldSelf is not used in rule";
                let value = rule["optionalOldSelf"].clone();
                errors.push(FieldError::invalid(at("optionalOldSelf"), value, detail));
            }
            _ => {}
        }
    }
}
