//! Checks embedded objects (`x-kubernetes-embedded-resource`): they need an apiVersion and a kind.

use serde_json::{Map, Value};

use super::node::SchemaNode;
use super::{FieldError, child_path};
use crate::name_validation;

/// Reports embedded objects without an apiVersion or kind.
pub(super) fn validate(root: &SchemaNode, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(root, object, "", &mut errors);
    errors
}

fn walk(node: &SchemaNode, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if node.embedded {
                check(fields, path, errors);
            }
            for (name, value) in fields {
                if let Some(part) = node.field(name) {
                    walk(part, value, &child_path(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(part) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    walk(part, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn check(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let field = child_path(path, name);
        match fields.get(name) {
            None => errors.push(FieldError::required(field, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(field, "", "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" && text.matches('/').count() > 1 => {
                let what = format!("unexpected GroupVersion string: {text}");
                errors.push(FieldError::invalid(field, text.as_str(), what));
            }
            Some(Value::String(text)) if name == "kind" => {
                let wrong = name_validation::validate_dns_1035_label(&text.to_lowercase());
                if !wrong.is_empty() {
                    let what = "may have mixed case, but should otherwise match: ";
                    let detail = format!("{what}{}", wrong.join(","));
                    errors.push(FieldError::invalid(field, text.as_str(), detail));
                }
            }
            Some(Value::String(_)) => {}
            Some(other) => {
                errors.push(FieldError::invalid(field, other.clone(), "must be a string"));
            }
        }
    }
}
