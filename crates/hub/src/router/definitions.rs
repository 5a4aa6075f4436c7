//! What requests may do with definitions, and when their effect is awaited.
//!
//! The hub's own definitions belong to its version, and so do their groups. Called by the write handlers.

use std::time::Duration;

use serde_json::Value;

use super::offload::run_offloaded;
use super::resource_request::{RequestVerb, ResourceRequest};
use crate::definition::{self, MAX_DEFINITION_BYTES, MAX_DEFINITIONS, NEEDS_KUBERNETES};
use crate::object::{self, ObjectPart, metadata_str};
use crate::object_limits::encoded_bytes;
use crate::request::ResourcePath;
use crate::schema::FieldError;
use crate::status::ApiError;
use crate::store::{CommitError, Precondition, StoreEntry, StoreOp};

/// How long a write of a definition waits until its kind is served.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(5);

/// Groups of kinds without which a hub does what others need a webhook or an API server of their own for.
const NEED_KUBERNETES: [&str; 2] = ["admissionregistration.k8s.io", "apiregistration.k8s.io"];
/// Groups of reviews, which the hub answers without storing anything.
const REVIEW_GROUPS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// The error for a resource that is not served.
pub(super) fn not_served(path: &ResourcePath) -> ApiError {
    let error = ApiError::resource_not_found();
    if NEED_KUBERNETES.contains(&path.group.as_str()) {
        return ApiError { message: format!("{}: {NEEDS_KUBERNETES}", error.message), ..error };
    }
    error
}

/// Whether a definition is one of the hub's own.
pub(super) fn is_own(call: &ResourceRequest<'_>, name: &str) -> bool {
    definition::is_definition(call.kind)
        && name.split_once('.').is_some_and(|(plural, group)| {
            let mut own = call.hub.inner.kinds.base().filter(|kind| !kind.built_in);
            own.any(|kind| kind.plural == plural && kind.group == group)
        })
}

/// Rejects a write of one of the hub's own definitions, and a new object of a kind that is being deleted.
pub(super) fn check_target(call: &ResourceRequest<'_>) -> Result<(), ApiError> {
    let name = call.path.name.as_deref().unwrap_or_default();
    if call.verb.is_write() && is_own(call, name) {
        let reason =
            "it belongs to this version of the hub: only another version of Machinist changes it";
        return Err(ApiError::forbidden_because(call.kind, name, reason));
    }
    let is_terminating = call.kind.defined.as_ref().is_some_and(|kind| kind.is_terminating);
    if is_terminating && call.verb == RequestVerb::Create {
        let verb = call.verb.name();
        let message = format!("{verb} not allowed while custom resource definition is terminating");
        return Err(ApiError { message, ..ApiError::method_not_allowed() });
    }
    Ok(())
}

/// Checks an object against its schema. The rules of a definition may take long on a small object, so other requests go
/// on beside them.
pub(super) fn validate(
    call: &ResourceRequest<'_>,
    part: ObjectPart,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let admission = call.kinds.admission(call.kind);
    let work = if call.kind.defined.is_some() { usize::MAX } else { 0 };
    run_offloaded(work, || admission.validate(call.kind, part, object, old))
}

/// Removes an object again whose definition went while it was being created, and reports that: the clean-up of the
/// definition did not see it.
pub(super) async fn check_still_served(
    call: &ResourceRequest<'_>,
    entry: &StoreEntry,
) -> Result<(), ApiError> {
    if call.kind.defined.is_none() {
        return Ok(());
    }
    let name = format!("{}.{}", call.kind.plural, call.kind.group);
    let definition = call.hub.inner.store.get(&format!("{}{name}", definition::KEY_PREFIX));
    let is_served =
        definition.and_then(|stored| object::decode(&stored.value, stored.revision).ok());
    let is_served =
        is_served.is_some_and(|stored| stored["metadata"]["deletionTimestamp"].is_null());
    if is_served {
        return Ok(());
    }
    let expect = Precondition::Revision(entry.revision);
    let gone = StoreOp::Delete { key: entry.key.to_string(), expect };
    match call.hub.inner.store.commit(vec![gone]).await {
        // Somebody else has removed or changed it: then it was seen.
        Ok(_) | Err(CommitError::Conflict { .. }) => Err(ApiError::resource_not_found()),
        Err(error) => Err(ApiError::internal(error.to_string())),
    }
}

/// Rejects a definition whose group the hub serves itself.
pub(super) fn check_object(call: &ResourceRequest<'_>, object: &Value) -> Result<(), ApiError> {
    if !definition::is_definition(call.kind) || call.path.subresource.is_some() {
        return Ok(());
    }
    let group = object["spec"]["group"].as_str().unwrap_or_default();
    let refuse = |detail: String| {
        let errors = vec![FieldError::forbidden("spec.group", detail)];
        Err(ApiError::invalid(call.kind, metadata_str(object, "name"), errors))
    };
    if group.is_empty() {
        return Ok(()); // the validation names it
    }
    if NEED_KUBERNETES.contains(&group) {
        return refuse(NEEDS_KUBERNETES.to_owned());
    }
    if is_reserved(call, group) {
        return refuse(format!("the hub serves {group} itself: use another group"));
    }
    Ok(())
}

fn is_reserved(call: &ResourceRequest<'_>, group: &str) -> bool {
    REVIEW_GROUPS.contains(&group) || call.hub.inner.kinds.base().any(|kind| kind.group == group)
}

/// Rejects one more definition than the hub serves.
pub(super) fn check_count(call: &ResourceRequest<'_>, object: &Value) -> Result<(), ApiError> {
    if !definition::is_definition(call.kind) {
        return Ok(());
    }
    let stored = call.hub.inner.store.list(definition::KEY_PREFIX, None, None).entries;
    let defined = stored.iter().filter(|entry| {
        !is_own(call, entry.key.strip_prefix(definition::KEY_PREFIX).unwrap_or_default())
    });
    let sizes: Vec<usize> = defined.map(|entry| entry.value.len()).collect();
    let bytes = sizes.iter().sum::<usize>() + encoded_bytes(object);
    let reason = if sizes.len() >= MAX_DEFINITIONS {
        format!("the hub serves {MAX_DEFINITIONS} definitions, and has as many: delete one")
    } else if bytes > MAX_DEFINITION_BYTES {
        let limit = MAX_DEFINITION_BYTES >> 20;
        format!("all definitions together may have {limit} MiB: delete one")
    } else {
        return Ok(());
    };
    Err(ApiError::forbidden_because(call.kind, metadata_str(object, "name"), &reason))
}

/// Waits until a write of a definition has its effect: a client that learns of a new kind uses it next.
pub(super) async fn settle(call: &ResourceRequest<'_>) {
    if definition::is_definition(call.kind) && call.verb.is_write() && !call.options.dry_run {
        call.hub.inner.kinds.wait_until_settled(MAX_SETTLE_TIME).await;
    }
}
