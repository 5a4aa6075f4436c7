//! Patches: JSON patch, merge patch and strategic merge patch.
//!
//! Pure functions from a document and a patch to a document. They follow kube-apiserver, which is
//! laxer than the RFCs: a `replace` of a missing field adds it, and indices may count from the end.
//! Called by the router's patch handler.

mod json;
mod merge;
mod merge_rules;
mod strategic;
mod strategic_list;

use serde_json::Value;

pub use merge_rules::{ListMerge, StrategicRules, strategic_rules};

use crate::object_limits::{
    MAX_DEPTH, MAX_OBJECT_BYTES, TooDeep, encoded_bytes, measure, shorten_value,
};
use crate::schema::FieldError;
use crate::status::ApiError;

/// The patch types.
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
    /// Returns the patch type of a `Content-Type`, ignoring parameters.
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
    /// The patch does not fit the document: 422. Responses omit the text, as those of
    /// kube-apiserver do.
    #[error("{0}")]
    DoesNotApply(String),
    /// The patch has too many operations or copies too much, or its result is too large: 413.
    #[error("{0}")]
    TooLarge(String),
    /// The result is nested too deep: 422.
    #[error("{0}")]
    TooDeep(String),
    /// kube-apiserver fails on this patch: 500 without a reason.
    #[error("{0}")]
    Failed(String),
    /// The kind does not support this patch type: 415.
    #[error("the kind does not support this patch type")]
    Unsupported,
}

impl PatchError {
    /// Returns the API error. `accepted` are the media types that the 415 message names.
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
            Self::TooDeep(message) => {
                let error = FieldError::forbidden("patch", message.clone());
                ApiError::invalid_options("", "", "", vec![error])
            }
            Self::Failed(message) => {
                ApiError { code: 500, reason: "", message: message.clone(), details: None }
            }
            Self::Unsupported => ApiError::unsupported_media_type(accepted),
        }
    }
}

/// Applies a patch.
///
/// `rules` come from [`strategic_rules`]. Without them a strategic merge patch is unsupported.
///
/// # Errors
/// See [`PatchError`].
pub fn apply(
    kind: PatchKind,
    target: &Value,
    patch: &Value,
    rules: Option<&StrategicRules>,
) -> Result<Value, PatchError> {
    let patched = match (kind, rules) {
        (PatchKind::Json, _) => json::apply(target, patch),
        // These two put nothing deeper than it is in the patch or in the target.
        (PatchKind::Merge, _) => merge::apply(target, patch),
        (PatchKind::Strategic, Some(rules)) => strategic::apply(target, patch, rules),
        (PatchKind::Strategic, None) | (PatchKind::Apply, _) => Err(PatchError::Unsupported),
    }?;
    measure(&patched, MAX_DEPTH).map_err(|error| too_deep(&error))?;
    if encoded_bytes(&patched) > MAX_OBJECT_BYTES {
        return Err(PatchError::TooLarge(format!("limit is {MAX_OBJECT_BYTES}")));
    }
    Ok(patched)
}

fn too_deep(error: &TooDeep) -> PatchError {
    PatchError::TooDeep(format!("the patched object is {error}"))
}

/// The error if a patched object cannot be decoded as its kind: 422 for the field `patch`.
#[must_use]
pub fn invalid_result(patched: &Value, why: &str) -> ApiError {
    let error = FieldError::invalid("patch", shorten_value(&patched.to_string()), why);
    ApiError::invalid_options("", "", "", vec![error])
}

/// The type name that Go's JSON decoder uses in errors.
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
