//! Whether every field that an alternative or condition names is also specified outside of it.

use super::schema_view::{SchemaView, child, item_path, property_path};
use crate::schema::FieldError;

/// Reports the fields that are missing.
pub(super) fn validate(schema: SchemaView<'_>, path: &str, errors: &mut Vec<FieldError>) {
    alternatives(schema, schema, path, path, errors);
}

/// Checks the parts of `conditions` against `schema`, whose paths are `at` and `path`.
fn alternatives(
    conditions: SchemaView<'_>,
    schema: SchemaView<'_>,
    path: &str,
    at: &str,
    errors: &mut Vec<FieldError>,
) {
    if let Some(not) = conditions.schema("not") {
        part(not, Some(schema), path, &child(at, "not"), errors);
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for (index, one) in conditions.schemas(keyword).enumerate() {
            part(one, Some(schema), path, &item_path(at, keyword, index), errors);
        }
    }
}

fn part(
    condition: SchemaView<'_>,
    schema: Option<SchemaView<'_>>,
    path: &str,
    at: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(schema) = schema else {
        errors.push(FieldError::required(path, format!("because it is defined in {at}")));
        return;
    };
    alternatives(condition, schema, path, at, errors);
    if let Some(items) = condition.schema("items") {
        part(items, schema.schema("items"), &child(path, "items"), &child(at, "items"), errors);
    }
    for (name, property) in condition.properties() {
        let (path, at) = (property_path(path, name), property_path(at, name));
        part(property, schema.property(name), &path, &at, errors);
    }
}
