//! The field manager of a request: its options, its name, and the errors of an apply.
//!
//! What managers own is decided by [`crate::field_management`]. Called by the create, update, patch and apply handlers.

use jiff::Timestamp;
use serde_json::Value;

use super::resource_request::{RequestVerb, ResourceRequest};
use crate::field_management::{ApplyError, FieldWriter};
use crate::patch::PatchKind;
use crate::schema::FieldError;
use crate::status::ApiError;

/// The longest name of a manager.
const MAX_NAME_BYTES: usize = 128;

/// Checks `fieldManager` and `force`.
pub(super) fn check_options(
    call: &ResourceRequest<'_>,
    patch: Option<PatchKind>,
) -> Result<(), ApiError> {
    let manager = call.options.field_manager.as_str();
    let mut errors = Vec::new();
    match patch {
        Some(PatchKind::Apply) if manager.is_empty() => {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        Some(PatchKind::Apply) | None => {}
        Some(_) if call.options.force.is_some() => {
            let text = "may not be specified for non-apply patch";
            errors.push(FieldError::forbidden("force", text));
        }
        Some(_) => {}
    }
    if manager.len() > MAX_NAME_BYTES {
        errors.push(FieldError::too_long("fieldManager", MAX_NAME_BYTES as u64));
    }
    if let Some((position, letter)) = manager.char_indices().find(|(_, c)| !is_printable(*c)) {
        let text =
            format!("invalid character U+{:04X} (at position {position})", u32::from(letter));
        errors.push(FieldError::invalid("fieldManager", manager, text));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid_options("meta.k8s.io", call.verb.options_kind(), "", errors))
}

fn is_printable(letter: char) -> bool {
    letter == ' ' || !(letter.is_control() || letter.is_whitespace())
}

/// The name of the manager: what the request says, or else the client in its `User-Agent`.
fn name(call: &ResourceRequest<'_>) -> String {
    if !call.options.field_manager.is_empty() {
        return call.options.field_manager.clone();
    }
    let client = call.user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for letter in client.chars().filter(|letter| is_printable(*letter)) {
        if name.len() + letter.len_utf8() > MAX_NAME_BYTES {
            break;
        }
        name.push(letter);
    }
    name
}

/// Whether the request is an apply patch.
pub(super) fn is_apply(call: &ResourceRequest<'_>) -> bool {
    call.verb == RequestVerb::Patch && call.is_apply
}

/// Runs `run` with the writer of the request.
pub(super) fn with_writer<T>(
    call: &ResourceRequest<'_>,
    run: impl FnOnce(&FieldWriter<'_>) -> T,
) -> T {
    let (manager, subresource) = (name(call), call.path.subresource.as_deref());
    run(&FieldWriter {
        manager: &manager,
        subresource: subresource.unwrap_or_default(),
        now: Timestamp::now(),
    })
}

/// Records the managers of a write. `old` is the stored object; `None` for a new one.
pub(super) fn track(call: &ResourceRequest<'_>, old: Option<&Value>, new: &mut Value) {
    let admission = call.kinds.admission(call.kind);
    if let Some(management) = admission.field_management() {
        with_writer(call, |writer| management.track(writer, old, new));
    }
}

/// The response to an apply that failed.
pub(super) fn apply_error(error: ApplyError) -> ApiError {
    match error {
        ApplyError::Malformed(text) => ApiError::bad_request(text),
        ApplyError::Conflicts(conflicts) => {
            ApiError::apply_conflict(conflicts.message(), &conflicts.causes())
        }
        // As kube-apiserver, which fails without a reason.
        ApplyError::Mismatch(text) => {
            ApiError { code: 500, reason: "", message: text, details: None }
        }
    }
}
