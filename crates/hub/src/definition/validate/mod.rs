//! Validates a definition as Kubernetes does, rule by rule and word by word.
//!
//! [`spec`] checks names and versions, [`structural`] and [`completeness`] that a schema says what every field is,
//! [`openapi`] its keywords, [`defaults`] its defaults, and [`columns`] what is printed, scaled and selected. Bounds that
//! Kubernetes does not have are in [`bounds`].

mod bounds;
mod columns;
mod completeness;
mod defaults;
mod keywords;
mod openapi;
mod rules;
mod schema_view;
mod spec;
mod structural;

use serde_json::Value;

use super::lifecycle::condition_holds;
use crate::name_validation::validate_subdomain;
use crate::object::metadata_str;
use crate::object_limits::MAX_FINDINGS;
use crate::schema::FieldError;

/// Returns what is wrong with a definition. `old` is the stored one; `None` for a new one.
#[must_use]
pub fn validate(definition: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &definition["spec"];
    if old.is_none() {
        name_errors(definition, &mut errors);
    }
    errors.extend(bounds::validate(spec));
    if !errors.iter().any(|error| error.detail.starts_with(bounds::TOO_LARGE)) {
        spec::validate(spec, old.map(|old| &old["spec"]), &mut errors);
    }
    if let Some(old) = old {
        immutable_errors(definition, old, &mut errors);
    }
    stored_version_errors(definition, &mut errors);
    approval_errors(definition, old, &mut errors);
    errors.truncate(MAX_FINDINGS);
    errors
}

/// Returns what is wrong with a status that a client wrote.
#[must_use]
pub fn validate_status(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let names = &definition["status"]["acceptedNames"];
    spec::name_errors(names, "status.acceptedNames", &mut errors);
    stored_version_errors(definition, &mut errors);
    errors
}

fn name_errors(definition: &Value, errors: &mut Vec<FieldError>) {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    let name = metadata_str(definition, "name");
    if name.is_empty() || !validate_subdomain(name).is_empty() {
        return; // the check of the metadata names it
    }
    if name != format!("{}.{}", text("/spec/names/plural"), text("/spec/group")) {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
}

fn immutable_errors(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let mut check = |pointer: &str| {
        if new.pointer(pointer) != old.pointer(pointer) {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            let value = new.pointer(pointer).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(field, value, "field is immutable"));
        }
    };
    if condition_holds(old, "Established") {
        check("/spec/scope");
        check("/spec/names/kind");
    }
    check("/spec/group");
    check("/spec/names/plural");
}

fn stored_version_errors(definition: &Value, errors: &mut Vec<FieldError>) {
    let path = "status.storedVersions";
    let stored = definition["status"]["storedVersions"].as_array();
    let stored: Vec<&str> = stored.into_iter().flatten().filter_map(Value::as_str).collect();
    if stored.is_empty() {
        let value: Value = Vec::<Value>::new().into();
        errors.push(FieldError::invalid(path, value, "must have at least one stored version"));
        return;
    }
    let known: Vec<&str> =
        super::versions(definition).filter_map(|version| version["name"].as_str()).collect();
    for version in super::versions(definition).filter(|version| version["storage"] == true) {
        let name = version["name"].as_str().unwrap_or_default();
        if !stored.contains(&name) {
            let detail = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(path, Value::from(stored.clone()), detail));
        }
    }
    for (index, name) in stored.iter().enumerate().filter(|(_, name)| !known.contains(name)) {
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until \
             a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        );
        errors.push(FieldError::invalid(format!("{path}[{index}]"), *name, detail));
    }
}

const APPROVAL: &str = "api-approved.kubernetes.io";

/// Whether a group belongs to the Kubernetes project.
fn is_community_group(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

fn approval_errors(definition: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if !is_community_group(definition["spec"]["group"].as_str().unwrap_or_default()) {
        return;
    }
    let approval = |definition: &Value| {
        let text = definition["metadata"]["annotations"][APPROVAL].as_str().unwrap_or_default();
        (text.to_owned(), is_approval(text))
    };
    let (text, is_approved) = approval(definition);
    if is_approved || old.is_some_and(|old| approval(old).1 == is_approved) {
        return;
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let needs = format!("protected groups must have approval annotation \"{APPROVAL}\"");
    errors.push(if text.is_empty() {
        FieldError::required(field, format!("{needs}, {see}"))
    } else {
        let with = "with either a URL or a reason starting with \"unapproved\"";
        FieldError::invalid(field, text, format!("{needs} {with}, {see}"))
    });
}

fn is_approval(text: &str) -> bool {
    let has_host = |rest: &str| !rest.is_empty() && !rest.starts_with('/');
    text.starts_with("unapproved") || text.split_once("://").is_some_and(|(_, rest)| has_host(rest))
}

#[cfg(test)]
mod tests;
