//! Handles apply patches (server-side apply): merges the patch into the stored object, or creates it.
//!
//! The merge is [`crate::field_management`]'s; the rest of a write is that of updates and creates. Called by the patch
//! handler.

use std::time::Instant;

use axum::response::Response;
use serde_json::Value;

use super::offload::run_offloaded;
use super::resource_request::ResourceRequest;
use super::write::{MAX_RETRY_TIME, prepare_update, store_update, stored_object};
use super::{create, definitions, field_managers, response, scale};
use crate::admission::apply_field_validation;
use crate::body::{self, DecodedObject};
use crate::field_management::FieldManagement;
use crate::object::{self, ObjectPart, metadata_str};
use crate::status::ApiError;
use crate::store::StoreEntry;

/// `PATCH` with `application/apply-patch+yaml`
pub(super) async fn apply(
    call: &ResourceRequest<'_>,
    name: &str,
    body: &[u8],
) -> Result<Response, ApiError> {
    let Some(management) = call.kinds.admission(call.kind).field_management() else {
        return Err(ApiError::method_not_allowed());
    };
    let decoded = run_offloaded(body.len(), || body::decode_apply_patch(body));
    let DecodedObject { value: mut patch, duplicates } =
        decoded.map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
    if !patch.is_object() {
        return Err(ApiError::bad_request("error decoding YAML: the patch is not an object"));
    }
    let warnings = apply_field_validation(call.options.field_validation, &[], &duplicates)
        .map_err(|error| ApiError::bad_request(format!("error strict decoding YAML: {error}")))?;
    // Nulls in the metadata are as good as nothing; `null` for the managers is allowed, a list of them is not.
    if patch["metadata"]["managedFields"].is_null() {
        object::set_metadata_field(&mut patch, "managedFields", None);
    }
    if let Some(paths) = scale::paths(call) {
        patch = scale::apply_patch(call, paths, &patch)?;
    }
    let key = object::storage_key(call.kind, call.namespace(), name);
    let (order, deadline) = (&call.hub.inner.write_order, Instant::now() + MAX_RETRY_TIME);
    let mut guard = None;
    if order.is_taken(&key) {
        guard = order.wait(&key, deadline).await;
    }
    while Instant::now() < deadline {
        let written = match call.hub.inner.store.get(&key) {
            Some(entry) => update(call, management, &entry, &patch).await?,
            None if call.path.subresource.is_some() => {
                return Err(ApiError::not_found(call.kind, name));
            }
            None => create(call, management, name, &patch).await?,
        };
        if let Some(mut response) = written {
            response::add_warnings(&mut response, &warnings);
            return Ok(response);
        }
        if guard.is_none() {
            guard = order.wait(&key, deadline).await;
        }
    }
    Err(ApiError::modified_conflict(call.kind, name))
}

/// Applies to a stored object; `None` if it changed meanwhile.
async fn update(
    call: &ResourceRequest<'_>,
    management: &FieldManagement,
    entry: &StoreEntry,
    patch: &Value,
) -> Result<Option<Response>, ApiError> {
    let size = entry.value.len() + object_size_hint(patch);
    let old = run_offloaded(size, || stored_object(call, entry))?;
    let (new, warnings) = run_offloaded(size, || {
        let force = call.options.force.unwrap_or_default();
        let applied = field_managers::with_writer(call, |writer| {
            management.apply(writer, Some(&old), patch, force)
        });
        let mut applied = applied.map_err(field_managers::apply_error)?;
        super::body_checks::set_namespace(call, &mut applied)?;
        check_nulls(call, &applied, Some(&old))?;
        prepare_update(call, entry, &old, applied, None)
    })?;
    let mut response = store_update(call, entry, &old, &new).await?;
    if let Some(response) = &mut response {
        response::add_warnings(response, &warnings);
    }
    Ok(response)
}

/// Creates the object; `None` if it was created meanwhile.
async fn create(
    call: &ResourceRequest<'_>,
    management: &FieldManagement,
    name: &str,
    patch: &Value,
) -> Result<Option<Response>, ApiError> {
    let force = call.options.force.unwrap_or_default();
    let applied =
        field_managers::with_writer(call, |writer| management.apply(writer, None, patch, force));
    let mut applied = applied.map_err(field_managers::apply_error)?;
    let uid = metadata_str(&applied, "uid");
    if !uid.is_empty() {
        let detail = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(ApiError::conflict(call.kind, name, &detail));
    }
    super::body_checks::set_namespace(call, &mut applied)?;
    super::body_checks::check_name(&applied, name)?;
    check_nulls(call, &applied, None)?;
    create::create_applied(call, applied).await
}

/// Rejects a null where the schema wants a value: what an applier gave up together with all of its contents. Other writes
/// drop such nulls.
fn check_nulls(
    call: &ResourceRequest<'_>,
    applied: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if call.kind.built_in || !contains_null(applied) {
        return Ok(());
    }
    let admission = call.kinds.admission(call.kind);
    let mut object = applied.clone();
    admission.apply_defaults_keeping_nulls(&mut object);
    let part = match call.path.subresource.as_deref() {
        None | Some("scale") => ObjectPart::Object,
        Some(_) => ObjectPart::Status,
    };
    definitions::validate(call, part, &object, old)
}

fn contains_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(contains_null),
        Value::Object(fields) => fields.values().any(contains_null),
        _ => false,
    }
}

/// Whether a patch is large, as far as that matters for where it is merged.
fn object_size_hint(patch: &Value) -> usize {
    crate::object_limits::encoded_bytes(patch)
}
