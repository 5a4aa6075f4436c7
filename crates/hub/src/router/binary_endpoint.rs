//! `/machinist/v1/binaries`: the binaries that machines upgrade to. Administrators list and upload them, administrators and
//! machines fetch them. They are no secret; what matters is that nobody else can put one here.
//!
//! An upload is not buffered like other bodies, so the router calls this before it reads the body.

use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{Method, StatusCode, header};
use serde_json::json;
use tokio_util::io::ReaderStream;

use super::authentication::AuthenticatedUser;
use super::{PeerAddress, response};
use crate::audit::AuditEvent;
use crate::auth::{ADMIN_GROUP, UserInfo};
use crate::binaries::{self, UploadError};
use crate::body;
use crate::hub::{Hub, now_rfc3339};
use crate::request::RequestTarget;
use crate::status::ApiError;

/// The resource, as the audit log and the path name it.
const BINARIES: &str = "binaries";
/// How much of a binary is read at once.
const CHUNK: usize = 1 << 16;

/// The digest in the path of an upload.
pub(super) fn uploaded_digest(target: &RequestTarget, parts: &Parts) -> Option<String> {
    let RequestTarget::Admin { endpoint } = target else { return None };
    let digest = endpoint.strip_prefix(BINARIES)?.strip_prefix('/')?;
    (parts.method == Method::PUT).then(|| digest.to_owned())
}

/// Stores an upload.
pub(super) async fn upload(
    hub: &Hub,
    user: Result<Option<AuthenticatedUser>, ()>,
    digest: &str,
    parts: &Parts,
    content: Body,
) -> Result<Response, ApiError> {
    let Ok(Some(user)) = user else {
        body::discard(content).await;
        return Err(ApiError::unauthorized());
    };
    // As for tokens and backups: in one's own name.
    let impersonates = parts.headers.keys().any(|name| name.as_str().starts_with("impersonate-"));
    if !user.info.is_in_group(ADMIN_GROUP) || impersonates {
        body::discard(content).await;
        return Err(ApiError::forbidden_path(&user.info.user, "put", parts.uri.path()));
    }
    let result = store(hub, digest, parts, content).await;
    hub.inner.audit.log(&AuditEvent {
        time: &now_rfc3339(),
        user: &user.info.user,
        groups: &user.info.groups,
        impersonated_user: None,
        source_ip: parts.extensions.get::<PeerAddress>().map(|peer| peer.0),
        verb: "create",
        group: "machinist",
        resource: BINARIES,
        namespace: None,
        name: Some(digest),
        dry_run: false,
        includes_secrets: false,
        code: result.as_ref().map_or_else(|error| error.code, |done| done.status().as_u16()),
    });
    result
}

async fn store(
    hub: &Hub,
    digest: &str,
    parts: &Parts,
    content: Body,
) -> Result<Response, ApiError> {
    if !binaries::is_digest(digest) {
        body::discard(content).await;
        let message = "the path of a binary ends with its SHA-256 digest in lower-case hex";
        return Err(ApiError::bad_request(message));
    }
    let query = parts.uri.query().unwrap_or_default();
    let size = query.split('&').find_map(|pair| pair.strip_prefix("size="));
    let Some(size) = size.and_then(|size| size.parse::<u64>().ok()) else {
        body::discard(content).await;
        return Err(ApiError::bad_request("size is missing: write ?size=BYTES"));
    };
    match hub.inner.binaries.receive(digest, size, content).await {
        Ok(()) => Ok(response::json_response(
            StatusCode::CREATED,
            &json!({"sha256": digest, "size": size}),
        )),
        Err(error @ UploadError::Busy) => Err(ApiError::quota_exceeded(error.to_string(), 5)),
        Err(
            error @ (UploadError::Disk(_) | UploadError::DiskFull(..) | UploadError::NoDirectory),
        ) => Err(ApiError::internal(error.to_string())),
        Err(error) => Err(ApiError::bad_request(error.to_string())),
    }
}

/// Whether a user may fetch binaries.
pub(super) fn may_fetch(user: &UserInfo) -> bool {
    user.node_name().is_some() || user.is_in_group(ADMIN_GROUP)
}

/// Sends a binary.
pub(super) async fn fetch(hub: &Hub, digest: &str) -> Result<Response, ApiError> {
    let opened = hub.inner.binaries.open(digest).await;
    let opened = opened.map_err(|error| ApiError::internal(format!("binary {digest}: {error}")))?;
    let Some((file, size)) = opened else {
        let hint =
            "it was never uploaded, or others have taken its place: run `machinist upgrade` again";
        return Err(ApiError::named_not_found(BINARIES, digest, hint));
    };
    let body = Body::from_stream(ReaderStream::with_capacity(file, CHUNK));
    let mut response = response::build_response(StatusCode::OK, "application/octet-stream", body);
    response.headers_mut().insert(header::CONTENT_LENGTH, size.into());
    Ok(response)
}

/// Lists the binaries.
pub(super) async fn list(hub: &Hub) -> Result<Response, ApiError> {
    let error = |error: std::io::Error| ApiError::internal(format!("binaries: {error}"));
    let own = hub.inner.binaries.own().await.map_err(error)?;
    let uploaded = hub.inner.binaries.uploaded().await.map_err(error)?;
    let uploaded: Vec<_> =
        uploaded.iter().map(|one| json!({"sha256": one.sha256, "size": one.size})).collect();
    let list = json!({
        "own": {
            "sha256": own.sha256, "size": own.size, "version": hub.inner.version,
            "architecture": std::env::consts::ARCH,
        },
        "uploaded": uploaded,
    });
    Ok(response::json_response(StatusCode::OK, &list))
}
