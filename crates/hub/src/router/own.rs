//! The hub's own endpoints under `/machinist/v1/`, for administrators: backups and tokens.

use axum::body::Body;
use axum::response::Response;
use http::{Method, StatusCode, header};
use serde_json::json;
use tokio_util::io::ReaderStream;

use super::{Incoming, answer, body};
use crate::audit::Line;
use crate::auth::tokens::{self, Role};
use crate::auth::{ADMINS, Identity};
use crate::hub::{Hub, now};
use crate::status::ApiError;
use crate::store::{Expect, Op};

/// How much of a backup may wait for its reader.
const PIPE: usize = 256 * 1024;
/// How long a bootstrap token lasts if nothing is said.
const BOOTSTRAP_SECONDS: i64 = 24 * 3600;

/// Answers a request to an own endpoint.
pub(super) async fn answer(
    hub: &Hub,
    who: &Identity,
    endpoint: &str,
    path: &str,
    request: &Incoming,
) -> Result<Response, ApiError> {
    let method = request.parts.method.clone();
    if !who.is_in(ADMINS) {
        let verb = method.as_str().to_ascii_lowercase();
        return Err(ApiError::forbidden_path(&who.user, &verb, path));
    }
    match (endpoint, method) {
        ("backup", Method::GET) => Ok(backup(hub)),
        ("tokens", Method::POST) => {
            let result = create_token(hub, request).await;
            let code = result.as_ref().map_or_else(|e| e.code, |r| r.status().as_u16());
            audit(hub, who, "create", code);
            result
        }
        ("backup" | "tokens", _) => Err(ApiError::method_not_allowed()),
        _ => Err(ApiError::resource_not_found()),
    }
}

/// The backup as a stream: nothing of it is kept.
fn backup(hub: &Hub) -> Response {
    let (reader, mut writer) = tokio::io::duplex(PIPE);
    let store = hub.inner.store.clone();
    let stop = hub.stopping();
    hub.inner.tasks.spawn(async move {
        tokio::select! {
            done = store.backup(&mut writer) => {
                if let Err(error) = done {
                    tracing::warn!(%error, "backup broke off");
                }
            }
            () = stop.cancelled() => tracing::warn!("backup broke off: the hub stops"),
        }
    });
    let body = Body::from_stream(ReaderStream::new(reader));
    answer::respond(StatusCode::OK, "application/octet-stream", body)
}

/// `{"role": "viewer", "ttlSeconds": 3600}` makes a token; its text is shown this once.
async fn create_token(hub: &Hub, request: &Incoming) -> Result<Response, ApiError> {
    let content_type = request.header(header::CONTENT_TYPE);
    let asked = body::parse(content_type, &request.body)?.value;
    let role: Role = serde_json::from_value(asked["role"].clone()).map_err(|_| {
        ApiError::bad_request("role must be admin, viewer, controller or bootstrap")
    })?;
    let seconds = match (asked["ttlSeconds"].as_i64(), role) {
        (Some(seconds), _) if seconds > 0 => Some(seconds),
        (Some(_), _) => return Err(ApiError::bad_request("ttlSeconds must be above 0")),
        (None, Role::Bootstrap) => Some(BOOTSTRAP_SECONDS),
        (None, Role::Admin | Role::Viewer | Role::Controller) => None,
    };
    let expires = seconds.map(|seconds| jiff::Timestamp::now().as_second().saturating_add(seconds));
    let mut random = [0; 32];
    random[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    random[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    let new = tokens::make(role, expires, random);
    let value = serde_json::to_vec(&new.record).map_err(|e| ApiError::internal(e.to_string()))?;
    let key = format!("{}{}", tokens::PREFIX, new.id);
    let op = Op::Put { key, value: value.into(), expect: Expect::Absent };
    hub.inner.store.commit(vec![op]).await.map_err(|e| ApiError::internal(e.to_string()))?;
    let made = json!({"id": new.id, "token": new.token, "role": role, "expires": expires});
    Ok(answer::json_answer(StatusCode::CREATED, &made))
}

fn audit(hub: &Hub, who: &Identity, verb: &str, code: u16) {
    hub.inner.audit.write(&Line {
        time: &now(),
        user: &who.user,
        groups: &who.groups,
        verb,
        group: "machinist",
        resource: "tokens",
        namespace: None,
        name: None,
        dry_run: false,
        code,
    });
}
