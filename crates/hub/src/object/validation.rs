//! Validates the name, labels, annotations, owners and finalizers of an object. Pure.

use serde_json::Value;

use crate::kind_registry::ResourceKind;
use crate::name_validation::{
    validate_dns_label, validate_label_value, validate_path_segment, validate_qualified_name,
    validate_subdomain,
};
use crate::object_limits::MAX_FINDINGS;
use crate::schema::FieldError;

/// The syntax of a kind's object names.
enum NameRule {
    /// RFC 1123 subdomain: `a.b-c`, up to 253 bytes.
    Subdomain,
    /// RFC 1123 label: `a-b`, up to 63 bytes.
    Label,
    /// What fits between two slashes: the names of roles and bindings have colons.
    PathSegment,
}

fn name_rule(kind: &ResourceKind) -> NameRule {
    match kind.kind.as_str() {
        _ if !kind.built_in => NameRule::Subdomain,
        "Namespace" => NameRule::Label,
        _ if kind.group == "rbac.authorization.k8s.io" => NameRule::PathSegment,
        _ => NameRule::Subdomain,
    }
}

/// Maximum size of all annotations of an object together.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// Returns the errors in the metadata of an object.
#[must_use]
pub fn validate_metadata(kind: &ResourceKind, object: &Value) -> Vec<FieldError> {
    let metadata = &object["metadata"];
    let mut errors = Vec::new();
    validate_name(kind, metadata, &mut errors);
    if !kind.namespaced && metadata["namespace"].as_str().is_some_and(|text| !text.is_empty()) {
        errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
    }
    validate_labels(&metadata["labels"], &mut errors);
    validate_annotations(&metadata["annotations"], &mut errors);
    validate_owner_references(&metadata["ownerReferences"], &mut errors);
    for finalizer in metadata["finalizers"].as_array().into_iter().flatten() {
        if errors.len() >= MAX_FINDINGS {
            break;
        }
        let text = finalizer.as_str().unwrap_or_default();
        for fault in validate_qualified_name(text) {
            errors.push(FieldError::invalid("metadata.finalizers", text, fault));
        }
    }
    errors
}

fn validate_name(kind: &ResourceKind, metadata: &Value, errors: &mut Vec<FieldError>) {
    let name = metadata["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
        return;
    }
    let faults = match name_rule(kind) {
        NameRule::Subdomain => validate_subdomain(name),
        NameRule::Label => validate_dns_label(name),
        NameRule::PathSegment => validate_path_segment(name),
    };
    for fault in faults {
        errors.push(FieldError::invalid("metadata.name", name, fault));
    }
}

fn validate_labels(labels: &Value, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        if errors.len() >= MAX_FINDINGS {
            break;
        }
        for fault in validate_qualified_name(key) {
            errors.push(FieldError::invalid("metadata.labels", key.as_str(), fault));
        }
        let value = value.as_str().unwrap_or_default();
        for fault in validate_label_value(value) {
            errors.push(FieldError::invalid("metadata.labels", value, fault));
        }
    }
}

fn validate_annotations(annotations: &Value, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        if errors.len() >= MAX_FINDINGS {
            break;
        }
        size += key.len() + value.as_str().map_or(0, str::len);
        // Annotation keys may have capitals in their prefix.
        for fault in validate_qualified_name(&key.to_ascii_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", key.as_str(), fault));
        }
    }
    if size > MAX_ANNOTATION_BYTES {
        errors.push(FieldError::too_long("metadata.annotations", MAX_ANNOTATION_BYTES as u64));
    }
}

fn validate_owner_references(owners: &Value, errors: &mut Vec<FieldError>) {
    let mut controllers = 0;
    // kube-apiserver does not say which of the references is wrong.
    let place = "metadata.ownerReferences";
    for owner in owners.as_array().into_iter().flatten() {
        if errors.len() >= MAX_FINDINGS {
            break;
        }
        let empty = |field: &str| owner[field].as_str().unwrap_or_default().is_empty();
        if empty("apiVersion") {
            let text = "version must not be empty";
            errors.push(FieldError::invalid(format!("{place}.apiVersion"), "", text));
        }
        for field in ["kind", "name", "uid"] {
            if empty(field) {
                let text = "must not be empty";
                errors.push(FieldError::invalid(format!("{place}.{field}"), "", text));
            }
        }
        controllers += usize::from(owner["controller"].as_bool().unwrap_or(false));
    }
    if controllers > 1 {
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            owners.clone(),
            "Only one reference can have Controller set to true",
        ));
    }
}
