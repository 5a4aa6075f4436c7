//! The hub's own endpoints under `/machinist/v1/`: backups and tokens. Administrators only.
//!
//! Called by the router after authentication; `machinist hub` is the client.

use axum::body::Body;
use axum::response::Response;
use http::{Method, StatusCode, header};
use serde_json::json;
use tokio_util::io::ReaderStream;

use super::{BufferedRequest, response};
use crate::audit::AuditEvent;
use crate::auth::tokens::{self, HubTokenRole};
use crate::auth::{ADMIN_GROUP, UserInfo};
use crate::body;
use crate::hub::{Hub, now_rfc3339};
use crate::random;
use crate::status::ApiError;
use crate::store::{Precondition, StoreOp};

/// How much of a backup is buffered for a slow reader.
const BACKUP_BUFFER_BYTES: usize = 256 * 1024;
/// Lifetime of a bootstrap token unless the request sets one.
const BOOTSTRAP_TOKEN_TTL_SECONDS: i64 = 24 * 3600;

/// Handles a request under `/machinist/v1/`.
pub(super) async fn handle(
    hub: &Hub,
    user: &UserInfo,
    endpoint: &str,
    path: &str,
    request: &BufferedRequest,
) -> Result<Response, ApiError> {
    let method = request.parts.method.clone();
    if !user.is_in_group(ADMIN_GROUP) {
        let verb = method.as_str().to_ascii_lowercase();
        return Err(ApiError::forbidden_path(&user.user, &verb, path));
    }
    match (endpoint, method) {
        ("backup", Method::GET) => Ok(backup(hub)),
        ("tokens", Method::POST) => {
            let result = create_token(hub, request).await;
            let code = result.as_ref().map_or_else(|e| e.code, |r| r.status().as_u16());
            audit(hub, user, "create", code);
            result
        }
        ("backup" | "tokens", _) => Err(ApiError::method_not_allowed()),
        _ => Err(ApiError::resource_not_found()),
    }
}

/// Streams a backup; nothing is written to disk.
fn backup(hub: &Hub) -> Response {
    let (reader, mut writer) = tokio::io::duplex(BACKUP_BUFFER_BYTES);
    let store = hub.inner.store.clone();
    let stop = hub.cancellation_token();
    hub.inner.tasks.spawn(async move {
        tokio::select! {
            done = store.backup(&mut writer) => {
                if let Err(error) = done {
                    tracing::warn!(%error, "backup failed");
                }
            }
            () = stop.cancelled() => tracing::warn!("backup aborted because the hub is stopping"),
        }
    });
    let body = Body::from_stream(ReaderStream::new(reader));
    response::build_response(StatusCode::OK, "application/octet-stream", body)
}

/// `{"role": "viewer", "ttlSeconds": 3600}` creates a token. Only this response contains its text.
async fn create_token(hub: &Hub, request: &BufferedRequest) -> Result<Response, ApiError> {
    let content_type = request.header(header::CONTENT_TYPE);
    let options = body::decode(content_type, &request.body)?.value;
    let role: HubTokenRole = serde_json::from_value(options["role"].clone()).map_err(|_| {
        ApiError::bad_request("role must be admin, viewer, controller or bootstrap")
    })?;
    let seconds = match (options["ttlSeconds"].as_i64(), role) {
        (Some(seconds), _) if seconds > 0 => Some(seconds),
        (Some(_), _) => return Err(ApiError::bad_request("ttlSeconds must be greater than 0")),
        (None, HubTokenRole::Bootstrap) => Some(BOOTSTRAP_TOKEN_TTL_SECONDS),
        (None, HubTokenRole::Admin | HubTokenRole::Viewer | HubTokenRole::Controller) => None,
    };
    let expires = seconds.map(|seconds| jiff::Timestamp::now().as_second().saturating_add(seconds));
    let random = random::bytes().map_err(|error| ApiError::internal(error.to_string()))?;
    let new = tokens::generate(role, expires, random);
    let value = serde_json::to_vec(&new.record).map_err(|e| ApiError::internal(e.to_string()))?;
    let key = format!("{}{}", tokens::TOKEN_KEY_PREFIX, new.id);
    let op = StoreOp::Put { key, value: value.into(), expect: Precondition::Absent };
    hub.inner.store.commit(vec![op]).await.map_err(|e| ApiError::internal(e.to_string()))?;
    let created = json!({"id": new.id, "token": new.token, "role": role, "expires": expires});
    Ok(response::json_response(StatusCode::CREATED, &created))
}

fn audit(hub: &Hub, user: &UserInfo, verb: &str, code: u16) {
    hub.inner.audit.log(&AuditEvent {
        time: &now_rfc3339(),
        user: &user.user,
        groups: &user.groups,
        verb,
        group: "machinist",
        resource: "tokens",
        namespace: None,
        name: None,
        dry_run: false,
        code,
    });
}
