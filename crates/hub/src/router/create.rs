//! Handles create requests.

use axum::response::Response;
use http::StatusCode;
use serde_json::Value;

use super::body_checks::{check_namespace, check_type, decode_object, set_namespace};
use super::offload::run_offloaded;
use super::resource_request::{RequestVerb, ResourceRequest};
use super::response;
use super::write::put_object;
use super::{definitions, field_managers, node_identity, role_grants};
use crate::body::DecodedObject;
use crate::hub::new_server_metadata;
use crate::object::{self, ObjectPart, metadata_str};
use crate::status::ApiError;
use crate::store::Precondition;
use crate::{admission, strategy};

/// How many generated names are tried for `generateName`.
const MAX_NAME_ATTEMPTS: usize = 8;

/// `POST`
pub(super) async fn create(
    call: &ResourceRequest<'_>,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Response, ApiError> {
    let mut given = run_offloaded(body.len(), || {
        let mut sent = decode_object(call.kind, content_type, body)?;
        check_type(call.kind, &sent.value)?;
        set_namespace(call, &mut sent.value)?;
        decode_input(call, sent, Writer::Tracked)
    })?;
    // A generated name that is taken is replaced by another, as often as kube-apiserver does.
    for left in (0..MAX_NAME_ATTEMPTS).rev() {
        let object = run_offloaded(body.len(), || prepare_object(call, &given.object))?;
        let name = metadata_str(&object, "name").to_owned();
        let result = insert(call, &name, &object).await;
        if given.generate_name
            && left > 0
            && matches!(&result, Err(error) if is_already_exists(error))
        {
            continue;
        }
        let _ = call.created_name.set(name); // already set if the client gave the name
        let mut response = result?;
        response::add_warnings(&mut response, &std::mem::take(&mut given.warnings));
        return Ok(response);
    }
    Err(ApiError::internal("no unused name was found for generateName"))
}

/// Creates the object of a `PUT`, for kinds that allow it.
pub(super) async fn create_on_update(
    call: &ResourceRequest<'_>,
    sent: DecodedObject,
) -> Result<Response, ApiError> {
    let given = decode_input(call, sent, Writer::Tracked)?;
    call.authorize_as(RequestVerb::Create, call.path.name.as_deref())?;
    let object = prepare_object(call, &given.object)?;
    let mut response = insert(call, metadata_str(&object, "name"), &object).await?;
    response::add_warnings(&mut response, &given.warnings);
    Ok(response)
}

/// Creates the object of an apply patch, whose managers are set already. `None` if one was created meanwhile.
pub(super) async fn create_applied(
    call: &ResourceRequest<'_>,
    applied: Value,
) -> Result<Option<Response>, ApiError> {
    let sent = DecodedObject { value: applied, duplicates: Vec::new() };
    let given = decode_input(call, sent, Writer::Applied)?;
    call.authorize_as(RequestVerb::Create, call.path.name.as_deref())?;
    let object = prepare_object(call, &given.object)?;
    match insert(call, metadata_str(&object, "name"), &object).await {
        Err(error) if is_already_exists(&error) => Ok(None),
        Err(error) => Err(error),
        Ok(mut response) => {
            response::add_warnings(&mut response, &given.warnings);
            Ok(Some(response))
        }
    }
}

/// Whether the managers of an object still have to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    Tracked,
    Applied,
}

/// A decoded object of the requested kind.
struct CreateInput {
    object: Value,
    warnings: Vec<String>,
    /// Whether the server generates the name.
    generate_name: bool,
}

fn decode_input(
    call: &ResourceRequest<'_>,
    sent: DecodedObject,
    writer: Writer,
) -> Result<CreateInput, ApiError> {
    let mut object = sent.value;
    let admission = call.kinds.admission(call.kind);
    let unknown = admission.prune(call.kind, &mut object)?;
    let mut warnings = validate_input(call, &unknown, &sent.duplicates)?;
    strategy::on_decode(call.kind, &mut object);
    admission.apply_defaults(&mut object);
    if writer == Writer::Tracked {
        field_managers::track(call, None, &mut object);
    }
    warnings.extend(node_identity::assign_roles(call, &mut object));
    warnings.extend(role_grants::warnings(call, &object));
    if !metadata_str(&object, "resourceVersion").is_empty() {
        return Err(ApiError {
            code: 500,
            reason: "",
            message: "resourceVersion should not be set on objects to be created".into(),
            details: None,
        });
    }
    let name = metadata_str(&object, "name");
    let chosen = name.is_empty() && !metadata_str(&object, "generateName").is_empty();
    if !chosen {
        let _ = call.created_name.set(name.to_owned()); // the audit log records failed requests too
    }
    Ok(CreateInput { object, warnings, generate_name: chosen })
}

/// Returns the object as it will be stored.
fn prepare_object(call: &ResourceRequest<'_>, sent: &Value) -> Result<Value, ApiError> {
    let admission = call.kinds.admission(call.kind);
    let mut object = sent.clone();
    object::prepare_create(call.kind, &mut object, &new_server_metadata());
    admission.apply_defaults(&mut object);
    strategy::on_create(call.kind, &mut object, &call.user);
    call.authorize(Some(metadata_str(&object, "name")))?;
    let uid = || node_identity::own_node_uid(call);
    strategy::check_machine_metadata(call.kind, &call.user, uid, &Value::Null, &object)?;
    let protected = &call.hub.inner.protected_annotations;
    strategy::check_protected_annotations(call.kind, &call.user, protected, &Value::Null, &object)?;
    strategy::check_machine_event(call.kind, &call.user, &Value::Null, &object)?;
    role_grants::check(call, None, &object)?;
    check_namespace(call)?;
    definitions::check_object(call, &object)?;
    definitions::validate(call, ObjectPart::Object, &object, None)?;
    admission.normalize_numbers(&mut object);
    Ok(object)
}

/// Stores a new object, unless this is a dry run.
async fn insert(
    call: &ResourceRequest<'_>,
    name: &str,
    object: &Value,
) -> Result<Response, ApiError> {
    let key = object::storage_key(call.kind, call.namespace(), name);
    let taken = || ApiError::already_exists(call.kind, name);
    if call.options.dry_run {
        if call.hub.inner.store.get(&key).is_some() {
            return Err(taken());
        }
        return Ok(call.renderer().object(StatusCode::CREATED, object));
    }
    definitions::check_count(call, object)?;
    call.hub.inner.quotas.check_held(&call.user, call.kind, &call.hub.inner.store)?;
    let entry = put_object(call, key, object, Precondition::Absent).await?.ok_or_else(taken)?;
    definitions::check_still_served(call, &entry).await?;
    call.hub.inner.quotas.record_created(&call.user, call.kind, &entry.key);
    call.renderer().entry(StatusCode::CREATED, &entry)
}

fn is_already_exists(error: &ApiError) -> bool {
    error.reason == "AlreadyExists"
}

fn validate_input(
    call: &ResourceRequest<'_>,
    unknown: &[String],
    duplicates: &[String],
) -> Result<Vec<String>, ApiError> {
    admission::apply_field_validation(call.options.field_validation, unknown, duplicates)
        .map_err(|error| admission::decode_error(call.kind, &error.to_string()))
}
