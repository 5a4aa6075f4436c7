//! Checks the defaults of a structural schema: each fits the schema it stands in, and has no unknown fields.

use serde_json::Value;

use super::schema_view::{SchemaView, child, property_path};
use crate::object_limits::MAX_FINDINGS;
use crate::schema::{FieldError, Schema};

/// Returns what is wrong with the defaults.
pub(super) fn validate(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(SchemaView::new(schema), path, true, &mut errors);
    errors
}

fn walk(schema: SchemaView<'_>, path: &str, is_root: bool, errors: &mut Vec<FieldError>) {
    if errors.len() >= MAX_FINDINGS {
        return;
    }
    if let Some(default) = schema.get("default") {
        check(schema, default, &child(path, "default"), errors);
    }
    // Defaults below alternatives are forbidden. A kube-apiserver does not check those of additionalProperties, and writes
    // objects with them that do not fit the schema.
    for name in ["items", "additionalProperties"] {
        if let Some(inside) = schema.schema(name) {
            walk(inside, &child(path, name), false, errors);
        }
    }
    for (name, property) in schema.properties() {
        // Those of the metadata are forbidden.
        if !(is_root && matches!(name.as_str(), "metadata" | "apiVersion" | "kind")) {
            walk(property, &property_path(path, name), false, errors);
        }
    }
}

fn check(schema: SchemaView<'_>, default: &Value, path: &str, errors: &mut Vec<FieldError>) {
    // The rules are checked with the schema as a whole.
    let Ok(compiled) = Schema::compile(schema.json()) else { return };
    let mut pruned = default.clone();
    if !compiled.prune_part(&mut pruned).is_empty() {
        errors.push(FieldError::invalid(path, default.clone(), "must not have unknown fields"));
    }
    for mut error in compiled.validate(default, None) {
        error.field = match error.field.as_str() {
            "<nil>" => path.to_owned(),
            inside if inside.starts_with('[') => format!("{path}{inside}"),
            inside => child(path, inside),
        };
        errors.push(error);
    }
}
