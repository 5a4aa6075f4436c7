//! Create.

use axum::response::Response;
use http::StatusCode;
use serde_json::Value;

use super::answer;
use super::beside::beside;
use super::body::Sent;
use super::call::{Call, Verb};
use super::check::{check_namespace, check_type, parse, set_namespace};
use super::write::put;
use crate::hub::birth;
use crate::object::{self, Part, meta};
use crate::status::ApiError;
use crate::store::Expect;
use crate::{admit, strategy};

/// How often a name is chosen for an object that leaves it to the server.
const NAMES: usize = 8;

/// `POST`
pub(super) async fn create(
    call: &Call<'_>,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Response, ApiError> {
    let mut given = beside(body.len(), || {
        let mut sent = parse(call.kind, content_type, body)?;
        check_type(call.kind, &sent.value)?;
        set_namespace(call, &mut sent.value)?;
        receive(call, sent)
    })?;
    // A name that the server chose is tried again with another end, as often as a real one does.
    for left in (0..NAMES).rev() {
        let object = beside(body.len(), || new_object(call, &given.object))?;
        let name = meta(&object, "name").to_owned();
        let result = insert(call, &name, &object).await;
        if given.chosen && left > 0 && matches!(&result, Err(error) if is_taken(error)) {
            continue;
        }
        let _ = call.created.set(name); // known already if it was given
        let mut response = result?;
        answer::warn(&mut response, &std::mem::take(&mut given.warnings));
        return Ok(response);
    }
    Err(ApiError::internal("no name was found"))
}

/// `PUT` of what is not there, for kinds where that makes it.
pub(super) async fn by_update(call: &Call<'_>, sent: Sent) -> Result<Response, ApiError> {
    let given = receive(call, sent)?;
    call.authorize_as(Verb::Create, call.path.name.as_deref())?;
    let object = new_object(call, &given.object)?;
    let mut response = insert(call, meta(&object, "name"), &object).await?;
    answer::warn(&mut response, &given.warnings);
    Ok(response)
}

/// An object as it was sent, in the shape of its kind.
struct Given {
    object: Value,
    warnings: Vec<String>,
    /// Whether the server is to choose the name.
    chosen: bool,
}

fn receive(call: &Call<'_>, sent: Sent) -> Result<Given, ApiError> {
    let mut object = sent.value;
    let unknown = call.hub.inner.admission(call.kind).shape(call.kind, &mut object)?;
    let warnings = judge(call, &unknown, &sent.duplicates)?;
    if !meta(&object, "resourceVersion").is_empty() {
        return Err(ApiError {
            code: 500,
            reason: "",
            message: "resourceVersion should not be set on objects to be created".into(),
            details: None,
        });
    }
    let name = meta(&object, "name");
    let chosen = name.is_empty() && !meta(&object, "generateName").is_empty();
    if !chosen {
        let _ = call.created.set(name.to_owned()); // for the audit log, whatever becomes of it
    }
    Ok(Given { object, warnings, chosen })
}

/// The object as it would be stored, or what is wrong with it.
fn new_object(call: &Call<'_>, sent: &Value) -> Result<Value, ApiError> {
    let admission = call.hub.inner.admission(call.kind);
    let mut object = sent.clone();
    object::prepare_create(call.kind, &mut object, &birth());
    admission.complete(&mut object);
    strategy::on_create(call.kind, &mut object, &call.who);
    call.authorize(Some(meta(&object, "name")))?;
    check_namespace(call)?;
    admission.check(call.kind, Part::Main, &object, None)?;
    admission.settle(&mut object);
    Ok(object)
}

/// Stores a new object, or says that it could be.
async fn insert(call: &Call<'_>, name: &str, object: &Value) -> Result<Response, ApiError> {
    let key = object::key(call.kind, call.namespace(), name);
    let taken = || ApiError::already_exists(call.kind, name);
    if call.options.dry_run {
        if call.hub.inner.store.get(&key).is_some() {
            return Err(taken());
        }
        return Ok(call.renderer().object(StatusCode::CREATED, object));
    }
    let entry = put(call, key, object, Expect::Absent).await?.ok_or_else(taken)?;
    call.renderer().entry(StatusCode::CREATED, &entry)
}

fn is_taken(error: &ApiError) -> bool {
    error.reason == "AlreadyExists"
}

fn judge(
    call: &Call<'_>,
    unknown: &[String],
    duplicates: &[String],
) -> Result<Vec<String>, ApiError> {
    admit::judge_fields(call.kind, call.options.field_validation, unknown, duplicates)
}
