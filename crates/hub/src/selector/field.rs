//! Field selectors: `metadata.name=a,spec.unschedulable!=true`.

use serde_json::Value;

use crate::kind_registry::ResourceKind;
use crate::schema::quote;
use crate::status::ApiError;

/// A parsed field selector. All terms must match.
#[derive(Debug, Clone, Default)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FieldTerm {
    field: String,
    value: String,
    equal: bool,
}

const METADATA_FIELDS: &[&str] = &["metadata.name", "metadata.namespace"];
const NAME_FIELD: &[&str] = &["metadata.name"];
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
    "metadata.namespace",
    "metadata.name",
];
const EVENTS_V1_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
    "metadata.namespace",
    "metadata.name",
];

impl FieldSelector {
    /// Parses a selector. An empty one selects everything.
    ///
    /// # Errors
    /// 400 with the text of kube-apiserver.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, equal, value)) = split_term(part) else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            let value = unescape(value).map_err(ApiError::bad_request)?;
            // kube-apiserver ignores empty terms too.
            if !(field.is_empty() && value.is_empty()) {
                terms.push(FieldTerm { field: field.to_owned(), value, equal });
            }
        }
        Ok(Self { terms })
    }

    /// Whether the fields of an object match.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| (field_value(object, &term.field) == term.value) == term.equal)
    }

    /// The value that a field must have, if the selector requires one.
    #[must_use]
    pub fn required_value(&self, field: &str) -> Option<&str> {
        let mut terms = self.terms.iter().filter(|term| term.equal);
        terms.find(|term| term.field == field).map(|term| term.value.as_str())
    }

    /// Whether the selector consists of a required value of this field only.
    #[must_use]
    pub fn requires_only(&self, field: &str) -> bool {
        matches!(self.terms.as_slice(), [term] if term.equal && term.field == field)
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Checks that the kind supports the fields.
    ///
    /// # Errors
    /// 400 with the text of kube-apiserver, for the first unsupported field.
    pub fn check_supported(&self, kind: &ResourceKind) -> Result<(), ApiError> {
        let fields = supported(kind);
        let unknown = self.terms.iter().find(|term| {
            !fields.contains(&term.field.as_str()) && !kind.selectable_fields.contains(&term.field)
        });
        let Some(term) = unknown else { return Ok(()) };
        if kind.built_in && fields == METADATA_FIELDS && kind.kind != "Secret" {
            return Err(ApiError::bad_request(format!(
                "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                quote(&term.field)
            )));
        }
        Err(ApiError::bad_request(format!("field label not supported: {}", term.field)))
    }
}

/// The fields by which a kind can be selected.
fn supported(kind: &ResourceKind) -> &'static [&'static str] {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Node") => &["metadata.name", "spec.unschedulable"],
        ("", "Namespace") => &["metadata.name", "status.phase"],
        ("", "Secret") => &["metadata.name", "metadata.namespace", "type"],
        ("", "Event") => EVENT_FIELDS,
        ("events.k8s.io", "Event") => EVENTS_V1_FIELDS,
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            &["metadata.name", "spec.signerName"]
        }
        _ if kind.built_in || kind.namespaced => METADATA_FIELDS,
        _ => NAME_FIELD,
    }
}

/// The value of a field as text; empty if it is missing.
fn field_value(object: &Value, path: &str) -> String {
    match path {
        // A missing boolean is false.
        "spec.unschedulable" => {
            let set = object.pointer("/spec/unschedulable").and_then(Value::as_bool);
            return set.unwrap_or(false).to_string();
        }
        "source" => {
            let component = text_at(object, "source.component");
            return if component.is_empty() { reporter(object) } else { component };
        }
        "reportingComponent" | "reportingController" => return reporter(object),
        _ => {}
    }
    // An event may be stored in the form of either API.
    let other = if let Some(rest) = path.strip_prefix("involvedObject.") {
        Some(format!("regarding.{rest}"))
    } else {
        path.strip_prefix("regarding.").map(|rest| format!("involvedObject.{rest}"))
    };
    let text = text_at(object, path);
    match other {
        Some(other) if text.is_empty() => text_at(object, &other),
        _ => text,
    }
}

fn reporter(object: &Value) -> String {
    let component = text_at(object, "reportingComponent");
    if component.is_empty() { text_at(object, "reportingController") } else { component }
}

fn text_at(object: &Value, path: &str) -> String {
    let value = path.split('.').try_fold(object, |value, key| value.get(key));
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

/// Splits at commas. A backslash escapes a comma.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Returns the field, whether the value must be equal, and the value.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (index, _) in term.char_indices() {
        let rest = &term[index..];
        for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((&term[..index], equal, value));
            }
        }
    }
    None
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    ));
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                ));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}
