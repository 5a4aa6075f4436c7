//! Patches: JSON patch, merge patch, strategic merge patch.
//!
//! All are functions from a document and a patch to a document. They follow what a Kubernetes API server does, which is
//! laxer than the standards in places: a `replace` of a field that is not there adds it, indices may count from the end.

mod json;
mod merge;
mod merge_rules;
mod strategic;
mod strategic_list;

use serde_json::Value;

pub use merge_rules::{ListMerge, StrategicRules, strategic_rules};

use crate::schema::FieldError;
use crate::status::ApiError;

/// The kinds of patches, by the media type of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`
    Strategic,
    /// `application/apply-patch+yaml` (server-side apply)
    Apply,
}

impl PatchKind {
    /// The kind of a `Content-Type`; parameters after `;` do not count.
    #[must_use]
    pub fn from_content_type(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }
}

/// Why a patch was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is malformed: 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the document: 422. The text is for logs; API servers keep it to themselves.
    #[error("{0}")]
    DoesNotApply(String),
    /// The patch has more operations or copies more than is allowed: 413.
    #[error("{0}")]
    TooLarge(String),
    /// An API server fails over this patch: 500 without a reason.
    #[error("{0}")]
    Failed(String),
    /// This kind of patch is not served for this kind of object: 415.
    #[error("this kind of patch is not supported here")]
    Unsupported,
}

impl PatchError {
    /// The answer to the client; `accepted` are the media types to name if the kind of patch is unsupported.
    #[must_use]
    pub fn to_api_error(&self, accepted: &[&str]) -> ApiError {
        match self {
            Self::Malformed(message) => ApiError::bad_request(message.clone()),
            Self::DoesNotApply(_) => ApiError {
                code: 422,
                reason: "Invalid",
                message: "the server rejected our request due to an error in our request".into(),
                details: Some(serde_json::json!({})),
            },
            Self::TooLarge(message) => ApiError {
                code: 413,
                reason: "RequestEntityTooLarge",
                message: format!("Request entity too large: {message}"),
                details: None,
            },
            Self::Failed(message) => {
                ApiError { code: 500, reason: "", message: message.clone(), details: None }
            }
            Self::Unsupported => ApiError::unsupported_media_type(accepted),
        }
    }
}

/// Applies a patch.
///
/// `rules` are those of [`strategic_rules`]; without them a strategic merge patch is unsupported.
///
/// # Errors
/// See [`PatchError`].
pub fn apply(
    kind: PatchKind,
    target: &Value,
    patch: &Value,
    rules: Option<&StrategicRules>,
) -> Result<Value, PatchError> {
    match (kind, rules) {
        (PatchKind::Json, _) => json::apply(target, patch),
        (PatchKind::Merge, _) => merge::apply(target, patch),
        (PatchKind::Strategic, Some(rules)) => strategic::apply(target, patch, rules),
        (PatchKind::Strategic, None) | (PatchKind::Apply, _) => Err(PatchError::Unsupported),
    }
}

/// The answer when a patched object cannot be read as its kind: 422 about the field `patch`.
#[must_use]
pub fn invalid_result(patched: &Value, why: &str) -> ApiError {
    let error = FieldError::invalid("patch", patched.to_string(), why);
    ApiError::invalid_options("", "", "", vec![error])
}

/// The name that Go's JSON reader has for the type of a value.
fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
