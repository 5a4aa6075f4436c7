//! Checks the columns, the `scale` subresource and the selectable fields of a version.

use std::collections::BTreeSet;

use serde_json::Value;

use super::schema_view::SchemaView;
use crate::schema::FieldError;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const MAX_SELECTABLE_FIELDS: usize = 8;

/// Checks printer columns.
pub(super) fn column_errors(columns: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
        let text = |field: &str| column[field].as_str().unwrap_or_default();
        let place = |field: &str| format!("{path}[{index}].{field}");
        if text("name").is_empty() {
            errors.push(FieldError::required(place("name"), ""));
        }
        let one_of = |known: &[&str]| format!("must be one of {}", known.join(","));
        match text("type") {
            "" => errors.push(FieldError::required(place("type"), one_of(&COLUMN_TYPES))),
            type_ if !COLUMN_TYPES.contains(&type_) => {
                errors.push(FieldError::invalid(place("type"), type_, one_of(&COLUMN_TYPES)));
            }
            _ => {}
        }
        let format = text("format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            errors.push(FieldError::invalid(place("format"), format, one_of(&COLUMN_FORMATS)));
        }
        match text("jsonPath") {
            "" => errors.push(FieldError::required(place("JSONPath"), "")),
            jsonpath => errors.extend(path_error(jsonpath, &place("JSONPath"))),
        }
    }
}

fn path_error(jsonpath: &str, place: &str) -> Option<FieldError> {
    let detail = "must be a simple json path starting with .";
    (!jsonpath.starts_with('.')).then(|| FieldError::invalid(place, jsonpath, detail))
}

/// Checks the `scale` subresource.
pub(super) fn scale_errors(subresources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let scale = &subresources["scale"];
    if !scale.is_object() {
        return;
    }
    let mut check = |field: &str, roots: &[&str], where_: &str, is_required: bool| {
        let place = format!("{path}.scale.{field}");
        let text = scale[field].as_str().unwrap_or_default();
        if text.is_empty() {
            errors.extend(is_required.then(|| FieldError::required(place, "")));
        } else if let Some(error) = path_error(text, &place) {
            errors.push(error);
        } else if !roots.iter().any(|root| text.starts_with(root)) {
            let detail = format!("should be a json path under {where_}");
            errors.push(FieldError::invalid(place, text, detail));
        }
    };
    check("specReplicasPath", &[".spec."], ".spec", true);
    check("statusReplicasPath", &[".status."], ".status", true);
    check("labelSelectorPath", &[".spec.", ".status."], "either .spec or .status", false);
}

/// Checks selectable fields.
pub(super) fn selectable_errors(
    fields: &Value,
    schema: &Value,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let fields = fields.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut seen = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let place = format!("{path}[{index}].jsonPath");
        let text = field["jsonPath"].as_str().unwrap_or_default();
        if text.is_empty() {
            errors.push(FieldError::required(place, ""));
            continue;
        }
        let found = match resolve(SchemaView::new(schema), text, false) {
            Ok(found) => found,
            Err(why) => {
                let detail = format!("is an invalid path: {why}");
                errors.push(FieldError::invalid(place, text, detail));
                continue;
            }
        };
        if text == ".metadata" || text.starts_with(".metadata.") {
            let detail = "must not point to fields in metadata";
            errors.push(FieldError::invalid(place.as_str(), text, detail));
        }
        if !matches!(found.type_(), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            errors.push(FieldError::invalid(place.as_str(), text, detail));
        }
        if !seen.insert(text) {
            errors.push(FieldError::duplicate(place, text));
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        errors.push(FieldError::too_many(path, seen.len(), MAX_SELECTABLE_FIELDS as u64));
    }
}

/// Finds the schema of a field such as `.spec.color` or `.spec['a.b']`.
pub(super) fn resolve<'a>(
    schema: SchemaView<'a>,
    path: &str,
    allow_brackets: bool,
) -> Result<SchemaView<'a>, String> {
    let unexpected_end = || "unexpected end of JSON path".to_owned();
    let mut here = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            (name, rest) = (after[..end].to_owned(), &after[end..]);
            if name.is_empty() {
                return Err(unexpected_end());
            }
        } else if let Some(after) = rest.strip_prefix('[') {
            if !allow_brackets {
                return Err("array notation is not allowed".to_owned());
            }
            let quoted = after.strip_prefix('\'').ok_or_else(|| {
                let found = after.split(['.', '[', ']']).next().unwrap_or_default();
                format!("expected single quoted string but got {found}")
            })?;
            let (text, after) = quoted.split_once("']").ok_or_else(unexpected_end)?;
            (name, rest) = (text.replace("\\'", "'"), after);
        } else {
            let found = rest.split(['.', '[', ']']).next().unwrap_or_default();
            return Err(format!("expected [ or . but got: {found}"));
        }
        let found = match here.properties().next() {
            Some(_) => here.property(&name),
            None => here.schema("additionalProperties"),
        };
        here = found.ok_or_else(|| "does not refer to a valid field".to_owned())?;
    }
    Ok(here)
}
