//! The hub's own endpoints under `/machinist/v1/`: backups, tokens, machines and binaries. Administrators only, except that
//! machines fetch binaries.
//!
//! Called by the router after authentication; `machinist hub` is the client.

use axum::body::Body;
use axum::response::Response;
use http::{Method, StatusCode};
use tokio_util::io::ReaderStream;

use super::{BufferedRequest, binary_endpoint, machine_endpoint, response, token_endpoints};
use crate::auth::{ADMIN_GROUP, UserInfo};
use crate::hub::Hub;
use crate::status::ApiError;

/// Handles a request under `/machinist/v1/`.
pub(super) async fn handle(
    hub: &Hub,
    user: &UserInfo,
    endpoint: &str,
    path: &str,
    request: &BufferedRequest,
) -> Result<Response, ApiError> {
    let method = request.parts.method.clone();
    if let Some(digest) = endpoint.strip_prefix("binaries/")
        && method == Method::GET
        && binary_endpoint::may_fetch(user)
    {
        return binary_endpoint::fetch(hub, digest).await;
    }
    if !user.is_in_group(ADMIN_GROUP) {
        let verb = method.as_str().to_ascii_lowercase();
        return Err(ApiError::forbidden_path(&user.user, &verb, path));
    }
    match endpoint.split_once('/').unwrap_or((endpoint, "")) {
        ("backup", "") if method == Method::GET => Ok(backup(hub, user, request)),
        ("binaries", "") if method == Method::GET => binary_endpoint::list(hub).await,
        ("backup", "") | ("binaries", _) => Err(ApiError::method_not_allowed()),
        ("tokens", id) => token_endpoints::handle(hub, user, id, request).await,
        ("machines", name) => machine_endpoint::handle(hub, user, name, request).await,
        _ => Err(ApiError::resource_not_found()),
    }
}

/// Streams a backup; nothing is written to disk.
fn backup(hub: &Hub, user: &UserInfo, request: &BufferedRequest) -> Response {
    let reader = hub.start_backup(user, request.source_ip());
    let body = Body::from_stream(ReaderStream::new(reader));
    response::build_response(StatusCode::OK, "application/octet-stream", body)
}
