//! Checks the names, the group and the versions of a definition.

use serde_json::Value;

use super::super::NEEDS_KUBERNETES;
use super::{columns, defaults, openapi, structural};
use crate::name_validation::{validate_dns_1035_label, validate_subdomain};
use crate::schema::FieldError;

/// The parts of versions that stand at the top of the internal form if all versions have the same: errors name them there.
#[derive(Clone, Copy)]
struct Shared<'a> {
    schema: Option<&'a Value>,
    subresources: Option<&'a Value>,
    columns: Option<&'a Value>,
    selectable: Option<&'a Value>,
}

fn shared<'a>(versions: &'a [Value], field: &str) -> Option<&'a Value> {
    let first = part(versions.first()?, field)?;
    versions.iter().all(|version| part(version, field) == Some(first)).then_some(first)
}

/// A part of a version; `None` if it is empty.
fn part<'a>(version: &'a Value, field: &str) -> Option<&'a Value> {
    version.get(field).filter(|value| !value.is_null() && **value != Value::Array(Vec::new()))
}

/// Reports what is wrong with a spec.
pub(super) fn validate(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    group_errors(spec, errors);
    let scope = spec["scope"].as_str().unwrap_or_default();
    match scope {
        "" => errors.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        _ => {
            let known = ["Cluster", "Namespaced"];
            errors.push(FieldError::not_supported("spec.scope", scope, &known));
        }
    }
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let tops = Shared {
        schema: shared(versions, "schema"),
        subresources: shared(versions, "subresources"),
        columns: shared(versions, "additionalPrinterColumns"),
        selectable: shared(versions, "selectableFields"),
    };
    if tops.schema.and_then(|schema| schema.get("openAPIV3Schema")).is_none() {
        for (index, version) in versions.iter().enumerate() {
            if version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
                let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
                errors.push(FieldError::required(path, ""));
            }
        }
    }
    for (index, version) in versions.iter().enumerate() {
        version_errors(version, index, tops, old, errors);
    }
    version_list_errors(versions, errors);
    for field in ["plural", "singular", "kind", "listKind"] {
        if spec["names"][field].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("spec.names.{field}"), ""));
        }
    }
    name_errors(&spec["names"], "spec.names", errors);
    shared_errors(versions, tops, old, errors);
    if spec["preserveUnknownFields"] == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, detail));
    }
    conversion_errors(&spec["conversion"], errors);
}

fn group_errors(spec: &Value, errors: &mut Vec<FieldError>) {
    let group = spec["group"].as_str().unwrap_or_default();
    let faults = validate_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !faults.is_empty() {
        errors.push(FieldError::invalid("spec.group", group, faults.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", group, detail));
    }
}

fn version_list_errors(versions: &[Value], errors: &mut Vec<FieldError>) {
    let mut names: Vec<&str> = versions.iter().filter_map(|it| it["name"].as_str()).collect();
    names.sort_unstable();
    let storage = versions.iter().filter(|version| version["storage"] == true).count();
    let mut wrong = |detail: &str| {
        let names: Vec<&Value> = versions.iter().map(|version| &version["name"]).collect();
        errors.push(FieldError::invalid("spec.versions", serde_json::json!(names), detail));
    };
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        wrong("must contain unique version names");
    }
    if storage != 1 {
        wrong("must have exactly one version marked as storage version");
    }
}

fn version_errors(
    version: &Value,
    index: usize,
    tops: Shared<'_>,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let path = format!("spec.versions[{index}]");
    let name = version["name"].as_str().unwrap_or_default();
    let faults = validate_dns_1035_label(name);
    if !faults.is_empty() {
        errors.push(FieldError::invalid(format!("{path}.name"), name, faults.join(",")));
        if index == 0 {
            // Kubernetes copies the first name to a field of its own, and checks both.
            errors.push(FieldError::invalid("spec.version", name, faults.join(",")));
        }
    }
    deprecation_errors(version, &format!("{path}.deprecationWarning"), errors);
    if tops.schema.is_none() {
        let has_status = version.pointer("/subresources/status").is_some();
        schema_errors(version, old, has_status, &format!("{path}.schema"), errors);
    }
    if tops.subresources.is_none() {
        columns::scale_errors(&version["subresources"], &format!("{path}.subresources"), errors);
    }
    if tops.columns.is_none() {
        let path = format!("{path}.additionalPrinterColumns");
        columns::column_errors(&version["additionalPrinterColumns"], &path, errors);
    }
    if tops.selectable.is_none() {
        let schema = &version["schema"]["openAPIV3Schema"];
        let path = format!("{path}.selectableFields");
        columns::selectable_errors(&version["selectableFields"], schema, &path, errors);
    }
}

fn shared_errors(
    versions: &[Value],
    tops: Shared<'_>,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let Some(first) = versions.first() else { return };
    if tops.schema.is_some() {
        let mut all = versions.iter();
        let has_status = all.any(|version| version.pointer("/subresources/status").is_some());
        schema_errors(first, old, has_status, "spec.validation", errors);
    }
    if let Some(subresources) = tops.subresources {
        columns::scale_errors(subresources, "spec.subresources", errors);
    }
    if let Some(list) = tops.columns {
        columns::column_errors(list, "spec.additionalPrinterColumns", errors);
    }
    if let Some(fields) = tops.selectable {
        let schema = &first["schema"]["openAPIV3Schema"];
        columns::selectable_errors(fields, schema, "spec.selectableFields", errors);
    }
}

fn deprecation_errors(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const MAX_WARNING_BYTES: usize = 256;
    let Some(text) = version["deprecationWarning"].as_str() else { return };
    let mut wrong = |detail: String| errors.push(FieldError::invalid(path, text, detail));
    if version["deprecated"] != true {
        wrong("can only be set for deprecated versions".to_owned());
        return;
    }
    if text.len() > MAX_WARNING_BYTES {
        wrong(format!("must be <= {MAX_WARNING_BYTES} characters long"));
    }
    if text.is_empty() {
        wrong("must not be an empty string".to_owned());
    }
    if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
        wrong(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

/// Checks one schema. The structure comes first: the other checks rely on it.
fn schema_errors(
    version: &Value,
    old: Option<&Value>,
    has_status: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(schema) = version["schema"].get("openAPIV3Schema").filter(|it| !it.is_null()) else {
        return;
    };
    let path = format!("{path}.openAPIV3Schema");
    let before = errors.len();
    if has_status {
        openapi::root_errors(schema, &path, errors);
    }
    if schema["nullable"] == true {
        let detail = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
    }
    if !openapi::has_unsupported_keywords(schema) {
        let structure = structural::validate(schema, &path);
        if structure.is_empty() {
            errors.extend(defaults::validate(schema, &path));
        }
        errors.extend(structure);
    }
    let is_structural = errors.len() == before;
    let is_known = is_unchanged(version, old);
    openapi::validate(schema, &path, is_structural && !is_known, errors);
    if errors.len() == before
        && let Err(error) = crate::schema::Schema::compile(schema)
    {
        let place = path.trim_end_matches(".openAPIV3Schema");
        errors.push(FieldError::invalid(place, "", format!("error building validator: {error}")));
    }
}

/// Whether the stored definition has the same schema: its rules were compiled already.
fn is_unchanged(version: &Value, old: Option<&Value>) -> bool {
    let versions = old.and_then(|old| old["versions"].as_array());
    let mut versions = versions.into_iter().flatten();
    versions.any(|old| old["name"] == version["name"] && old["schema"] == version["schema"])
}

/// Checks the names of a kind.
pub(super) fn name_errors(names: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let text = |field: &str| names[field].as_str().unwrap_or_default();
    for field in ["plural", "singular"] {
        let faults = validate_dns_1035_label(text(field));
        if !text(field).is_empty() && !faults.is_empty() {
            errors.push(FieldError::invalid(
                format!("{path}.{field}"),
                text(field),
                faults.join(","),
            ));
        }
    }
    for field in ["kind", "listKind"] {
        let faults = validate_dns_1035_label(&text(field).to_lowercase());
        if !text(field).is_empty() && !faults.is_empty() {
            let detail =
                format!("may have mixed case, but should otherwise match: {}", faults.join(","));
            errors.push(FieldError::invalid(format!("{path}.{field}"), text(field), detail));
        }
    }
    let mut list = |field: &str| {
        let items = names[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        for (index, name) in items.enumerate() {
            let faults = validate_dns_1035_label(name);
            if !faults.is_empty() {
                let place = format!("{path}.{field}[{index}]");
                errors.push(FieldError::invalid(place, name, faults.join(",")));
            }
        }
    };
    list("shortNames");
    list("categories");
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(format!("{path}.listKind"), text("listKind"), detail));
    }
}

fn conversion_errors(conversion: &Value, errors: &mut Vec<FieldError>) {
    let path = "spec.conversion";
    match conversion["strategy"].as_str().unwrap_or_default() {
        "None" => {}
        "" => errors.push(FieldError::required(format!("{path}.strategy"), "")),
        "Webhook" => {
            errors.push(FieldError::forbidden(format!("{path}.strategy"), NEEDS_KUBERNETES));
            return;
        }
        other => {
            let known = ["None", "Webhook"];
            errors.push(FieldError::not_supported(format!("{path}.strategy"), other, &known));
        }
    }
    let detail = "should not be set when strategy is not set to Webhook";
    let webhook = &conversion["webhook"];
    if webhook["clientConfig"].is_object() {
        errors.push(FieldError::forbidden(format!("{path}.webhookClientConfig"), detail));
    }
    if webhook["conversionReviewVersions"].as_array().is_some_and(|list| !list.is_empty()) {
        errors.push(FieldError::forbidden(format!("{path}.conversionReviewVersions"), detail));
    }
}
