//! Handles requests for the `scale` subresource: a `Scale` is read from an object and written into it.
//!
//! What is written goes through the same steps as any other write of the object. Called by the update and patch handlers.

use serde_json::{Value, json};

use super::body_checks::check_name;
use super::resource_request::ResourceRequest;
use crate::kind_registry::ScalePaths;
use crate::object::{metadata_str, set_metadata_field};
use crate::scale;
use crate::schema::FieldError;
use crate::status::ApiError;

/// Where the scale of a request is; `None` if the request is not about one.
pub(super) fn paths<'a>(call: &'a ResourceRequest<'_>) -> Option<&'a ScalePaths> {
    let is_scale = call.path.subresource.as_deref() == Some("scale");
    call.kind.scale.as_ref().filter(|_| is_scale)
}

/// Returns the object with what a `Scale` says.
pub(super) fn write_into(
    call: &ResourceRequest<'_>,
    paths: &ScalePaths,
    old: &Value,
    scale: &Value,
) -> Result<Value, ApiError> {
    check_scale(scale)?;
    check_name(scale, metadata_str(old, "name"))?;
    let replicas = match &scale["spec"]["replicas"] {
        Value::Null if !scale::has_replicas(paths, old) => {
            let field = paths.spec_replicas.replace('/', ".");
            let text = format!("the spec replicas field \"{field}\" cannot be empty");
            return Err(ApiError::bad_request(text));
        }
        Value::Null => 0,
        number => number
            .as_i64()
            .filter(|number| i32::try_from(*number).is_ok())
            .ok_or_else(|| wrong(call, number))?,
    };
    let mut new = scale::with_replicas(paths, old, replicas);
    let revision = metadata_str(scale, "resourceVersion");
    if !revision.is_empty() {
        set_metadata_field(&mut new, "resourceVersion", Some(revision.into()));
    }
    Ok(new)
}

/// Returns the apply patch of the object that does what an apply patch of its scale says.
pub(super) fn apply_patch(
    call: &ResourceRequest<'_>,
    paths: &ScalePaths,
    scale: &Value,
) -> Result<Value, ApiError> {
    check_scale(scale)?;
    let base = json!({
        "apiVersion": call.kind.api_version(), "kind": call.kind.kind,
        "metadata": scale.get("metadata").cloned().unwrap_or_else(|| json!({})),
    });
    match &scale["spec"]["replicas"] {
        Value::Null => Ok(base),
        number => {
            let replicas = number.as_i64().ok_or_else(|| wrong(call, number))?;
            Ok(scale::with_replicas(paths, &base, replicas))
        }
    }
}

fn check_scale(scale: &Value) -> Result<(), ApiError> {
    let type_ = (scale["apiVersion"].as_str(), scale["kind"].as_str());
    if type_ == (Some("autoscaling/v1"), Some("Scale")) {
        return Ok(());
    }
    let (version, kind) = (type_.0.unwrap_or_default(), type_.1.unwrap_or_default());
    Err(ApiError::bad_request(format!(
        "the object is a {kind} of {version}, but this endpoint takes a Scale of autoscaling/v1"
    )))
}

fn wrong(call: &ResourceRequest<'_>, number: &Value) -> ApiError {
    let name = call.path.name.as_deref().unwrap_or_default();
    let error = FieldError::invalid("spec.replicas", number.clone(), "must be an integer");
    ApiError::invalid(call.kind, name, vec![error])
}
