//! Handles update and patch requests.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::body_checks::{
    check_name, check_same_type, check_type, check_uid, decode_object, set_namespace,
};
use super::offload::run_offloaded;
use super::resource_request::{RequestVerb, ResourceRequest};
use super::response;
use super::{apply, create, definitions, field_managers, node_identity, read, role_grants, scale};
use crate::admission;
use crate::body::{self, DecodedObject};
use crate::field_management::keep_times_if_unchanged;
use crate::kind_registry::ResourceKind;
use crate::object::{self, ObjectPart, metadata_str};
use crate::object_limits::{MAX_STORED_DEPTH, measure};
use crate::patch::{self, PatchKind};
use crate::request::FieldValidation;
use crate::schema::FieldError;
use crate::status::ApiError;
use crate::store::{CommitError, Precondition, StoreEntry, StoreError, StoreOp};
use crate::{deletion, event_conversion, rbac, strategy};

/// How long a write without a resourceVersion is retried while others write the object.
pub(super) const MAX_RETRY_TIME: Duration = Duration::from_secs(30);

/// The patch media types that a kind accepts.
pub(super) fn patch_types(kind: &ResourceKind) -> &'static [&'static str] {
    if kind.built_in {
        &[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            "application/apply-patch+yaml",
        ]
    } else {
        &[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ]
    }
}

/// `PUT`
pub(super) async fn update(
    call: &ResourceRequest<'_>,
    name: &str,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Response, ApiError> {
    let DecodedObject { value, duplicates } =
        run_offloaded(body.len(), || decode_object(call.kind, content_type, body))?;
    if let Some(paths) = scale::paths(call) {
        return read_modify_write(call, name, &duplicates, false, |old| {
            scale::write_into(call, paths, old, &value)
        })
        .await;
    }
    check_type(call.kind, &value)?;
    let mut value = value;
    set_namespace(call, &mut value)?;
    check_name(&value, name)?;
    let key = object::storage_key(call.kind, call.namespace(), name);
    let creates = strategy::creates_on_update(call.kind)
        && call.path.subresource.is_none()
        && metadata_str(&value, "resourceVersion").is_empty();
    if creates && call.hub.inner.store.get(&key).is_none() {
        return create::create_on_update(call, DecodedObject { value, duplicates }).await;
    }
    read_modify_write(call, name, &duplicates, false, |_| Ok(value.clone())).await
}

/// `PATCH`
pub(super) async fn patch(
    call: &ResourceRequest<'_>,
    name: &str,
    kind: PatchKind,
    body: &[u8],
) -> Result<Response, ApiError> {
    let accepted = patch_types(call.kind);
    let rules = patch::strategic_rules(&call.kind.group, &call.kind.kind);
    let rules = rules.filter(|_| call.kind.built_in);
    // A Scale is of a built-in kind, whatever it is the scale of.
    let scale = scale::paths(call);
    let rules = if scale.is_some() { patch::strategic_rules("", "ConfigMap") } else { rules };
    let supported = match kind {
        PatchKind::Json | PatchKind::Merge => true,
        PatchKind::Strategic => rules.is_some(),
        PatchKind::Apply => return apply::apply(call, name, body).await,
    };
    if !supported {
        return Err(ApiError::unsupported_media_type(accepted));
    }
    let DecodedObject { value, duplicates } = run_offloaded(body.len(), || body::decode_json(body))
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
    read_modify_write(call, name, &duplicates, true, |old| {
        let shown = scale.map(|paths| crate::scale::scale_of(paths, old));
        let new = patch::apply(kind, shown.as_ref().unwrap_or(old), &value, rules)
            .map_err(|error| error.to_api_error(accepted))?;
        if let Some(paths) = scale {
            return scale::write_into(call, paths, old, &new);
        }
        if !new.is_object() {
            return Err(ApiError::bad_request("the patch result is not an object"));
        }
        Ok(new)
    })
    .await
}

/// Reads, changes and writes until no other write intervenes.
async fn read_modify_write(
    call: &ResourceRequest<'_>,
    name: &str,
    duplicates: &[String],
    is_patch: bool,
    change: impl Fn(&Value) -> Result<Value, ApiError>,
) -> Result<Response, ApiError> {
    let key = object::storage_key(call.kind, call.namespace(), name);
    let (order, deadline) = (&call.hub.inner.write_order, Instant::now() + MAX_RETRY_TIME);
    let mut guard = None;
    if is_patch && order.is_taken(&key) {
        guard = order.wait(&key, deadline).await;
    }
    while Instant::now() < deadline {
        let entry = call.hub.inner.store.get(&key);
        let entry = entry.ok_or_else(|| ApiError::not_found(call.kind, name))?;
        let size = entry.value.len();
        let old = run_offloaded(size, || stored_object(call, &entry))?;
        let changed = run_offloaded(size, || change(&old))?;
        // A patched object keeps the resourceVersion that was read, so a conflict is retried unless
        // the patch sets one itself.
        let conditional = !metadata_str(&changed, "resourceVersion").is_empty() && !is_patch;
        let (new, warnings) =
            run_offloaded(size, || prepare_update(call, &entry, &old, changed, Some(duplicates)))?;
        match store_update(call, &entry, &old, &new).await? {
            Some(mut response) => {
                response::add_warnings(&mut response, &warnings);
                return Ok(response);
            }
            None if conditional => return Err(ApiError::modified_conflict(call.kind, name)),
            None if guard.is_none() => guard = order.wait(&key, deadline).await,
            None => {}
        }
    }
    Err(ApiError::modified_conflict(call.kind, name))
}

/// Decodes a stored object as it is shown. An older version may have stored it in another form.
///
/// Whether the user may change it is decided here already: errors about a change repeat parts of the object.
pub(super) fn stored_object(
    call: &ResourceRequest<'_>,
    entry: &StoreEntry,
) -> Result<Value, ApiError> {
    let mut object = call.renderer().value(entry)?;
    strategy::check_machine_event(call.kind, &call.user, &object, &object)?;
    strategy::on_decode(call.kind, &mut object);
    Ok(object)
}

/// Returns the object as it will be stored. `duplicates` are the fields that the request has twice; `None` if it was an
/// apply patch, which has recorded its managers already.
pub(super) fn prepare_update(
    call: &ResourceRequest<'_>,
    entry: &StoreEntry,
    old: &Value,
    mut new: Value,
    duplicates: Option<&[String]>,
) -> Result<(Value, Vec<String>), ApiError> {
    let (kind, name) = (call.kind, metadata_str(old, "name"));
    let subresource = call.path.subresource.as_deref();
    check_same_type(kind, &new)?;
    let admission = call.kinds.admission(kind);
    let strict = call.options.field_validation == FieldValidation::Strict;
    let sent = (strict && call.verb == RequestVerb::Patch).then(|| new.clone());
    let unknown = admission.prune(kind, &mut new)?;
    let validated = admission::apply_field_validation(
        call.options.field_validation,
        &unknown,
        duplicates.unwrap_or_default(),
    );
    let warnings = validated.map_err(|error| match &sent {
        Some(sent) => patch::invalid_result(sent, &error.to_string()),
        None => admission::decode_error(kind, &error.to_string()),
    })?;
    if metadata_str(&new, "name") != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            metadata_str(&new, "name")
        )));
    }
    check_uid(call, old, &new)?;
    let version = read::parse_revision(metadata_str(&new, "resourceVersion"))?;
    if version.is_some_and(|version| version != 0 && version != entry.revision) {
        return Err(ApiError::modified_conflict(kind, name));
    }
    if version.is_none_or(|version| version == 0) && !object::allows_unconditional_update(kind) {
        let value = if kind.kind == "Lease" && kind.built_in { json!("") } else { json!(0) };
        let detail = "must be specified for an update";
        let errors = vec![FieldError::invalid("metadata.resourceVersion", value, detail)];
        return Err(ApiError::invalid_options(&kind.group, &kind.plural, name, errors));
    }
    let errors = object::validate_metadata_update(old, &new);
    if !errors.is_empty() {
        return Err(ApiError::invalid(kind, name, errors));
    }
    strategy::on_decode(kind, &mut new);
    admission.apply_defaults(&mut new);
    if duplicates.is_some() {
        field_managers::track(call, Some(old), &mut new);
    }
    let part = match subresource {
        None | Some("scale") => ObjectPart::Object,
        Some(_) => ObjectPart::Status,
    };
    object::prepare_update(kind, part, old, &mut new);
    strategy::on_update(kind, old, &mut new, subresource);
    admission.apply_defaults(&mut new);
    object::update_generation(kind, old, &mut new);
    node_identity::check_roles(call, old, &new)?;
    let uid = || node_identity::own_node_uid(call);
    strategy::check_machine_metadata(kind, &call.user, uid, old, &new)?;
    let protected = &call.hub.inner.protected_annotations;
    strategy::check_protected_annotations(kind, &call.user, protected, old, &new)?;
    strategy::check_machine_event(kind, &call.user, old, &new)?;
    role_grants::check(call, Some(old), &new)?;
    definitions::check_object(call, &new)?;
    definitions::validate(call, part, &new, Some(old))?;
    admission.normalize_numbers(&mut new);
    keep_times_if_unchanged(old, &mut new);
    Ok((new, warnings))
}

/// Stores the object, or removes it if its last finalizer is gone. `None` means a conflict.
pub(super) async fn store_update(
    call: &ResourceRequest<'_>,
    entry: &StoreEntry,
    old: &Value,
    new: &Value,
) -> Result<Option<Response>, ApiError> {
    if object::is_unchanged(old, new) && is_stored_in_storage_version(call, entry) {
        return call.renderer().entry(StatusCode::OK, entry).map(Some);
    }
    if call.options.dry_run {
        return Ok(Some(call.renderer().object(StatusCode::OK, new)));
    }
    let key = entry.key.to_string();
    if deletion::is_ready_for_removal(call.kind, new) {
        let expect = Precondition::Revision(entry.revision);
        let mut ops = vec![StoreOp::Delete { key, expect }];
        ops.extend(node_identity::on_delete(call, new));
        let done = commit(call, ops).await?;
        return Ok(done.map(|_| call.renderer().object(StatusCode::OK, new)));
    }
    match put_object(call, key, new, Precondition::Revision(entry.revision)).await? {
        Some(entry) => call.renderer().entry(StatusCode::OK, &entry).map(Some),
        None => Ok(None),
    }
}

/// Whether nothing is gained by storing an unchanged object again. A write in another storage version moves it there.
fn is_stored_in_storage_version(call: &ResourceRequest<'_>, entry: &StoreEntry) -> bool {
    let Some(defined) = &call.kind.defined else { return true };
    let wanted = format!("{}/{}", call.kind.group, defined.storage_version);
    response::decode_entry(entry).is_ok_and(|stored| stored["apiVersion"] == wanted)
}

/// An object as it is stored: events have one form there, whichever API they came through.
fn stored_form<'a>(call: &ResourceRequest<'_>, object: &'a Value) -> Cow<'a, Value> {
    let mut stored = Cow::Borrowed(object);
    if event_conversion::is_events_v1(call.kind) {
        event_conversion::to_core_v1(stored.to_mut());
    }
    if let Some(defined) = &call.kind.defined {
        defined.convert_to_stored(stored.to_mut(), &call.kind.group);
    }
    stored
}

/// Writes an object; `None` if the precondition fails.
pub(super) async fn put_object(
    call: &ResourceRequest<'_>,
    key: String,
    object: &Value,
    expect: Precondition,
) -> Result<Option<StoreEntry>, ApiError> {
    let mut stored = stored_form(call, object);
    measure(&stored, MAX_STORED_DEPTH).map_err(|error| {
        let name = metadata_str(&stored, "name");
        let error = FieldError::forbidden("", format!("the object is {error}"));
        ApiError::invalid(call.kind, name, vec![error])
    })?;
    let value = object::encode(&stored).map_err(|error| ApiError::internal(error.to_string()))?;
    // An object that an older version stored may stay as large as it is.
    let old_size = call.hub.inner.store.get(&key).map_or(0, |entry| entry.value.len());
    let limit = strategy::max_object_bytes(call.kind, &call.user);
    let value = if value.len() > limit.max(old_size) && !field_managers::is_apply(call) {
        // Who owns what is dropped before a write is refused.
        let mut smaller = stored.into_owned();
        object::set_metadata_field(&mut smaller, "managedFields", None);
        stored = Cow::Owned(smaller);
        object::encode(&stored).map_err(|error| ApiError::internal(error.to_string()))?
    } else {
        value
    };
    if value.len() > limit.max(old_size) {
        let name = metadata_str(&stored, "name");
        return Err(ApiError::object_too_large(call.kind, name, value.len(), limit));
    }
    let (hub, size) = (&call.hub.inner, value.len());
    hub.stored_bytes.check(&call.user, &hub.store, old_size, size)?;
    let mut ops = vec![StoreOp::Put { key, value, expect }];
    ops.extend(node_identity::on_write(call, object));
    commit(call, ops).await
}

/// Writes an object that is marked for deletion, whatever its size: nothing may keep an object from
/// being deleted. `None` if the precondition fails.
pub(super) async fn put_marked_object(
    call: &ResourceRequest<'_>,
    key: String,
    object: &Value,
    expect: Precondition,
) -> Result<Option<StoreEntry>, ApiError> {
    let stored = stored_form(call, object);
    let value = object::encode(&stored).map_err(|error| ApiError::internal(error.to_string()))?;
    let mut ops = vec![StoreOp::Put { key, value, expect }];
    // The garbage collector removes it later, and does not know who asked for it.
    ops.extend(node_identity::on_delete(call, object));
    commit(call, ops).await
}

/// Commits operations together. Returns the entry of the first; `None` if a precondition fails.
pub(super) async fn commit(
    call: &ResourceRequest<'_>,
    ops: Vec<StoreOp>,
) -> Result<Option<StoreEntry>, ApiError> {
    // Its tokens end with a service account.
    let is_account = call.kind.built_in && call.kind.kind == "ServiceAccount";
    let touches_machine = ops.len() > 1 || is_account;
    let touches_role = ops.iter().any(|op| op.key().starts_with(rbac::KEY_PREFIX));
    match call.hub.inner.store.commit(ops).await {
        Ok(done) => {
            if touches_machine || touches_role {
                call.hub.inner.recheck_credentials();
            }
            Ok(done.entries.into_iter().next().flatten())
        }
        Err(CommitError::Conflict { .. }) => Ok(None),
        Err(CommitError::Store(error @ StoreError::DiskFull { .. })) => {
            Err(ApiError::unavailable(error.to_string()))
        }
        Err(error) => Err(ApiError::internal(error_chain(&error))),
    }
}

/// Returns an error with its causes.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
