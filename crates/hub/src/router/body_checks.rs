//! Checks of a decoded body before it is written: type, name, namespace and UID match the request.
//!
//! Called by the create, update and patch handlers.

use serde_json::Value;

use super::resource_request::{RequestVerb, ResourceRequest};
use super::response::decode_entry;
use crate::body::{self, DecodeError, DecodedObject};
use crate::hex;
use crate::kind_registry::ResourceKind;
use crate::object::{self, metadata_str};
use crate::schema::FieldError;
use crate::status::ApiError;

/// Checks that a write refers to the stored object and not to an earlier one of the same name.
pub(super) fn check_uid(
    call: &ResourceRequest<'_>,
    old: &Value,
    new: &Value,
) -> Result<(), ApiError> {
    let (uid, old_uid) = (metadata_str(new, "uid"), metadata_str(old, "uid"));
    if uid.is_empty() || uid == old_uid {
        return Ok(());
    }
    let name = metadata_str(old, "name");
    if call.verb == RequestVerb::Patch {
        let errors = vec![FieldError::invalid("metadata.uid", uid, "field is immutable")];
        return Err(ApiError::invalid(call.kind, name, errors));
    }
    let detail =
        format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}");
    Err(ApiError::conflict(call.kind, name, &detail))
}

/// Checks that an update keeps the type of the object.
pub(super) fn check_same_type(kind: &ResourceKind, object: &Value) -> Result<(), ApiError> {
    let wanted = kind.api_version();
    let version = object["apiVersion"].as_str().unwrap_or_default();
    if version != wanted {
        let errors = vec![FieldError::invalid("apiVersion", version, format!("must be {wanted}"))];
        return Err(ApiError::invalid_options(
            "",
            &kind.kind,
            metadata_str(object, "name"),
            errors,
        ));
    }
    check_type(kind, object)
}

/// Checks that the body has the type of the path.
pub(super) fn check_type(kind: &ResourceKind, object: &Value) -> Result<(), ApiError> {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let (version, name) = (text("apiVersion"), text("kind"));
    let wanted = kind.api_version();
    if version != wanted {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({wanted})"
        )));
    }
    if name != kind.kind {
        let detail = format!("must be {}", kind.kind);
        let errors = vec![FieldError::invalid("kind", name, detail)];
        return Err(ApiError::invalid_options(
            &kind.group,
            name,
            metadata_str(object, "name"),
            errors,
        ));
    }
    Ok(())
}

/// Decodes an object of a kind.
pub(super) fn decode_object(
    kind: &ResourceKind,
    content_type: Option<&str>,
    bytes: &[u8],
) -> Result<DecodedObject, ApiError> {
    let unrecognized = |reason: &str| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {reason} ({})",
            kind.kind,
            summary(bytes)
        ))
    };
    let mut sent = body::decode(content_type, bytes).map_err(|error| match error {
        DecodeError::Json(_) | DecodeError::Yaml(_) => unrecognized(&error.to_string()),
        DecodeError::UnsupportedMediaType => error.into(),
    })?;
    let Some(fields) = sent.value.as_object_mut() else {
        let reason = "couldn't get version/kind; json parse error: it is not an object";
        return Err(unrecognized(reason));
    };
    if kind.built_in {
        fields.entry("apiVersion").or_insert_with(|| kind.api_version().into());
        fields.entry("kind").or_insert_with(|| kind.kind.as_str().into());
    } else if fields.get("kind").and_then(Value::as_str).unwrap_or_default().is_empty() {
        let text = String::from_utf8_lossy(bytes);
        return Err(unrecognized(&format!("Object 'Kind' is missing in '{}'", shortened(&text))));
    }
    Ok(sent)
}

/// The beginning of a body, for error messages.
fn summary(bytes: &[u8]) -> String {
    const MAX_SUMMARY_BYTES: usize = 30;
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') if bytes.len() > MAX_SUMMARY_BYTES => {
            format!("{} ...", String::from_utf8_lossy(&bytes[..MAX_SUMMARY_BYTES]))
        }
        Some(b'{') => String::from_utf8_lossy(bytes).into_owned(),
        Some(_) => {
            let digits = hex::encode(&bytes[..bytes.len().min(MAX_SUMMARY_BYTES)]);
            if bytes.len() > MAX_SUMMARY_BYTES { format!("{digits} ...") } else { digits }
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

/// Sets the namespace of the path and rejects any other.
pub(super) fn set_namespace(
    call: &ResourceRequest<'_>,
    object: &mut Value,
) -> Result<(), ApiError> {
    let Some(namespace) = call.namespace() else {
        object::set_metadata_field(object, "namespace", None);
        return Ok(());
    };
    match metadata_str(object, "namespace") {
        "" => object::set_metadata_field(object, "namespace", Some(namespace.into())),
        same if same == namespace => {}
        _ => {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    Ok(())
}

/// Checks that the object has the name of the path.
pub(super) fn check_name(object: &Value, name: &str) -> Result<(), ApiError> {
    let sent = metadata_str(object, "name");
    if sent == name {
        return Ok(());
    }
    Err(ApiError::bad_request(if sent.is_empty() {
        format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    } else {
        format!("the name of the object ({sent}) does not match the name on the URL ({name})")
    }))
}

/// Checks that the namespace exists and is not being deleted.
pub(super) fn check_namespace(call: &ResourceRequest<'_>) -> Result<(), ApiError> {
    let Some(name) = call.namespace() else { return Ok(()) };
    let Some(kind) = call.kinds.registry.find("", "v1", "namespaces") else {
        return Ok(());
    };
    let entry = call.hub.inner.store.get(&object::storage_key(kind, None, name));
    let entry = entry.ok_or_else(|| ApiError::not_found(kind, name))?;
    if object::is_deleting(&decode_entry(&entry)?) {
        let reason = format!(
            "unable to create new content in namespace {name} because it is being terminated"
        );
        return Err(ApiError::forbidden_because(call.kind, "", &reason));
    }
    Ok(())
}
