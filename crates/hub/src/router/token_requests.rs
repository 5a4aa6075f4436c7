//! `serviceaccounts/NAME/token`: `kubectl create token`.
//!
//! A token is signed and not stored: it counts until it expires or its service account is deleted. Called by the router.

use axum::response::Response;
use http::{Method, StatusCode, header};
use serde_json::{Value, json};

use super::authentication::AuthenticatedUser;
use super::{BufferedRequest, response};
use crate::audit::{AuditEvent, ImpersonatedUser};
use crate::auth::UserInfo;
use crate::auth::authorizer::{AuthorizationDecision, RequestAttributes};
use crate::auth::service_account::{self, API_AUDIENCE, ServiceAccount, TokenClaims};
use crate::body;
use crate::hub::{Hub, now_rfc3339};
use crate::object::{self, metadata_str};
use crate::request::ResourcePath;
use crate::schema::FieldError;
use crate::status::ApiError;

/// The largest request.
const MAX_REQUEST_BYTES: usize = 16 << 10;
/// The most audiences of a token, and the longest.
const MAX_AUDIENCES: usize = 16;
const MAX_AUDIENCE_BYTES: usize = 256;
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;

/// Whether a path is that of tokens of a service account.
pub(super) fn is_token_request(path: &ResourcePath) -> bool {
    path.group.is_empty()
        && path.version == "v1"
        && path.plural == "serviceaccounts"
        && path.subresource.as_deref() == Some("token")
        && path.namespace.is_some()
}

/// Handles a request for a token.
pub(super) fn handle(
    hub: &Hub,
    user: &AuthenticatedUser,
    path: &ResourcePath,
    request: &BufferedRequest,
) -> Result<Response, ApiError> {
    if request.parts.method != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    hub.inner.quotas.check_rate(&user.info, request.body.len())?;
    let result = create(hub, &user.info, path, request);
    let code = result.as_ref().map_or_else(|error| error.code, |it| it.status().as_u16());
    let caller = user.impersonator.as_ref().unwrap_or(&user.info);
    hub.inner.audit.log(&AuditEvent {
        time: &now_rfc3339(),
        user: &caller.user,
        groups: &caller.groups,
        impersonated_user: user
            .impersonator
            .is_some()
            .then_some(ImpersonatedUser { username: &user.info.user, groups: &user.info.groups }),
        source_ip: request.source_ip(),
        verb: "create",
        group: "",
        resource: "serviceaccounts/token",
        namespace: path.namespace.as_deref(),
        name: path.name.as_deref(),
        dry_run: false,
        includes_secrets: true,
        code,
    });
    result
}

fn create(
    hub: &Hub,
    user: &UserInfo,
    path: &ResourcePath,
    request: &BufferedRequest,
) -> Result<Response, ApiError> {
    let attributes = RequestAttributes {
        verb: "create".to_owned(),
        resource: path.plural.clone(),
        subresource: "token".to_owned(),
        namespace: path.namespace.clone(),
        name: path.name.clone(),
        ..RequestAttributes::default()
    };
    let name = path.name.as_deref().unwrap_or_default();
    if hub.inner.authorize(user, &attributes) != AuthorizationDecision::Allow {
        let namespace = path.namespace.as_deref();
        let resource = "serviceaccounts/token";
        return Err(ApiError::forbidden(&user.user, "create", "", resource, name, namespace));
    }
    if request.body.len() > MAX_REQUEST_BYTES {
        return Err(ApiError::too_large(MAX_REQUEST_BYTES));
    }
    let sent = body::decode(request.header(header::CONTENT_TYPE), &request.body)?.value;
    let account = stored_account(hub, path, name)?;
    let spec = &sent["spec"];
    let (audiences, seconds) = check_spec(spec)?;
    if let Some(bound) = spec["boundObjectRef"].as_object() {
        let text = |field: &str| bound.get(field).and_then(Value::as_str).unwrap_or_default();
        let kind = text("kind");
        return Err(ApiError::bad_request(format!(
            "cannot bind token to object of type /{}, Kind={kind}: leave out boundObjectRef",
            text("apiVersion")
        )));
    }
    let ca = hub.inner.ca.as_ref();
    let ca = ca.ok_or_else(|| ApiError::internal("the hub has no CA to sign tokens with"))?;
    let issued = jiff::Timestamp::now();
    let expires = issued.as_second() + seconds;
    let claims = TokenClaims {
        account: account.clone(),
        audiences: audiences.clone(),
        id: uuid::Uuid::new_v4().to_string(),
        issued: issued.as_second(),
        expires,
    };
    let token = service_account::sign(&claims, ca)
        .map_err(|error| ApiError::internal(format!("cannot sign the token: {error}")))?;
    let until = jiff::Timestamp::from_second(expires).unwrap_or(jiff::Timestamp::MAX);
    let answer = json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": account.name, "namespace": account.namespace, "uid": account.uid,
            "creationTimestamp": now_rfc3339(),
        },
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": null},
        "status": {
            "token": token,
            "expirationTimestamp": until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        },
    });
    Ok(response::json_response(StatusCode::CREATED, &answer))
}

fn stored_account(hub: &Hub, path: &ResourcePath, name: &str) -> Result<ServiceAccount, ApiError> {
    let kinds = hub.inner.kinds.read();
    let kind = kinds.registry.find("", "v1", "serviceaccounts");
    let kind = kind.ok_or_else(ApiError::resource_not_found)?;
    let namespace = path.namespace.clone().unwrap_or_default();
    let key = object::storage_key(kind, Some(&namespace), name);
    let entry = hub.inner.store.get(&key).ok_or_else(|| ApiError::not_found(kind, name))?;
    let stored = response::decode_entry(&entry)?;
    let uid = metadata_str(&stored, "uid").to_owned();
    Ok(ServiceAccount { namespace, name: name.to_owned(), uid })
}

/// The audiences and the lifetime in seconds.
fn check_spec(spec: &Value) -> Result<(Vec<String>, i64), ApiError> {
    let invalid = |error: FieldError| {
        ApiError::invalid_options("authentication.k8s.io", "TokenRequest", "", vec![error])
    };
    let listed = spec["audiences"].as_array().into_iter().flatten();
    let mut audiences: Vec<String> =
        listed.filter_map(|it| it.as_str().map(ToOwned::to_owned)).collect();
    if audiences.is_empty() {
        audiences.push(API_AUDIENCE.to_owned());
    }
    let is_long = |audience: &String| audience.len() > MAX_AUDIENCE_BYTES;
    if audiences.len() > MAX_AUDIENCES || audiences.iter().any(is_long) {
        let text = format!(
            "must have at most {MAX_AUDIENCES} items of at most {MAX_AUDIENCE_BYTES} bytes"
        );
        return Err(invalid(FieldError::forbidden("spec.audiences", text)));
    }
    let seconds = match &spec["expirationSeconds"] {
        Value::Null => DEFAULT_SECONDS,
        value => value.as_i64().ok_or_else(|| {
            ApiError::bad_request("spec.expirationSeconds must be a whole number of seconds")
        })?,
    };
    let wrong = |text: &str| invalid(FieldError::invalid("spec.expirationSeconds", seconds, text));
    match seconds {
        _ if seconds < MIN_SECONDS => Err(wrong("may not specify a duration less than 10 minutes")),
        _ if seconds > MAX_SECONDS => {
            Err(wrong("may not specify a duration larger than 2^32 seconds"))
        }
        _ => Ok((audiences, seconds)),
    }
}
