//! The router: authenticates, parses and authorizes a request, then calls its handler.
//!
//! ```text
//! request ─ authenticate ─→ parse (request) ─→ authorize ─→ read | write | delete | watch ─→
//! response
//! ```
//!
//! It is a `tower::Service`: [`crate::server`] serves it over TLS, and a `kube::Client` in the same
//! process calls it without a socket.

mod access_reviews;
mod admin_endpoints;
mod apply;
mod authentication;
mod binary_endpoint;
mod body_checks;
mod compression;
mod content_negotiation;
mod create;
mod definitions;
mod delete;
mod discovery_endpoints;
mod field_managers;
mod impersonation;
mod list_response;
mod machine_endpoint;
mod node_identity;
mod offload;
mod read;
mod request_verb;
mod resource_request;
mod response;
mod role_grants;
mod scale;
mod selection;
mod token_endpoints;
mod token_requests;
mod upgrade;
mod visibility;
mod watch;
mod watch_encoder;
mod watch_rights;
mod write;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::request::Parts;
use http::{Method, header};
use tracing::Instrument as _;

use crate::auth::UserInfo;
use crate::auth::certificates::ClientCertificate;
use crate::body;
use crate::hub::Hub;
use crate::request::{self, RequestTarget};
use crate::request_shares::RequestShare;
use crate::status::ApiError;
use authentication::{AuthenticatedUser, Credential, authenticate};
use resource_request::ResourceRequest;
pub use upgrade::UpgradeTasks;

/// How much of an error is logged.
const MAX_LOGGED_CHARS: usize = 1000;

/// The peer of a connection. The server puts it into the extensions of each request.
#[derive(Debug, Clone)]
pub enum PeerCertificate {
    /// A user in the same process, without a certificate.
    Trusted(UserInfo),
    /// A client certificate that was verified when the connection was made. Each request checks whether it still counts.
    Verified(ClientCertificate),
    /// A client certificate that failed verification.
    Untrusted,
}

/// In the extensions of a request: the address of the client, for the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// In the extensions of a response: the client was authenticated as this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated(pub UserInfo);

impl Hub {
    /// The API. Requests are authenticated by a [`PeerCertificate`] in their extensions or a bearer token.
    pub fn router(&self) -> Router {
        Router::new().fallback(handle).with_state(self.clone())
    }

    /// The API as one user, without a socket: for tests and for controllers in the same process.
    pub fn router_as(&self, user: UserInfo) -> Router {
        self.router().layer(axum::Extension(PeerCertificate::Trusted(user)))
    }
}

async fn handle(State(hub): State<Hub>, request: Request) -> Response {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let target = request::parse_path(parts.uri.path());
    let verb = resource_request::metrics_verb(&target, &parts);
    let user = authenticate(&hub, &parts);
    let authenticated = user.as_ref().ok().and_then(Option::as_ref);
    let authenticated = authenticated.map(|user| Authenticated(user.info.clone()));
    let path = parts.uri.path();
    let path = path.get(..MAX_LOGGED_CHARS).unwrap_or(path);
    let user_name = authenticated.as_ref().map(|user| user.0.user.as_str());
    let span = tracing::info_span!("request", verb, path, user = user_name);
    let mut response = match route(&hub, user, target, parts, body).instrument(span).await {
        Ok(response) => response,
        Err(error) => {
            // 504: the client asked for a resource version of the future, which is no fault of ours.
            if error.code >= 500 && error.code != 504 {
                // A client chooses parts of the message, and must not fill the log with it.
                let message: String = error.message.chars().take(MAX_LOGGED_CHARS).collect();
                tracing::warn!(code = error.code, message, "request failed");
            }
            response::error_response(&error)
        }
    };
    hub.inner.metrics.observe_request(verb, response.status().as_u16(), started.elapsed());
    if let Some(authenticated) = authenticated {
        response.extensions_mut().insert(authenticated);
    }
    response
}

/// A request with its body.
struct BufferedRequest {
    parts: Parts,
    body: body::BufferedBody,
}

impl BufferedRequest {
    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The address of the client; none for a component in the same process.
    fn source_ip(&self) -> Option<IpAddr> {
        self.parts.extensions.get::<PeerAddress>().map(|peer| peer.0)
    }
}

async fn route(
    hub: &Hub,
    user: Result<Option<AuthenticatedUser>, ()>,
    target: RequestTarget,
    parts: Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let share = user.as_ref().ok().and_then(Option::as_ref);
    let share =
        share.filter(|user| user.credential != Credential::InProcess || !user.info.is_privileged());
    let share = share.map(|user| hub.inner.shares.of(&user.info));
    let open = match share.as_ref().map(RequestShare::open_request).transpose() {
        Ok(open) => open,
        Err(error) => {
            body::discard(body).await;
            return Err(error);
        }
    };
    if let Some(digest) = binary_endpoint::uploaded_digest(&target, &parts) {
        return binary_endpoint::upload(hub, user, &digest, &parts, body).await;
    }
    // Only authenticated clients may send a body, and not with a read. It is read to its end whatever the response
    // will be: a client that is cut off while it sends does not see the reason.
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let body = match &user {
        Ok(Some(user)) if !is_read => {
            let content_type = parts.headers.get(header::CONTENT_TYPE);
            let content_type = content_type.and_then(|value| value.to_str().ok());
            hub.inner.body_reader.read(&user.info, content_type, body).await?
        }
        _ => {
            body::discard(body).await;
            body::BufferedBody::default()
        }
    };
    let request = BufferedRequest { parts, body };
    let user = match user {
        Ok(Some(user)) => user,
        Ok(None) if allows_anonymous(&target) => {
            return discovery_endpoints::handle(hub, &target, &request);
        }
        Ok(None) | Err(()) => return Err(ApiError::unauthorized()),
    };
    let sender = user.info.clone();
    let user = impersonation::impersonate(hub, user, &request)?;
    let Some(open) = open else { return dispatch(hub, user, None, target, &request).await };
    let running = open.run(is_read).await?;
    let response = dispatch(hub, user, share, target, &request).await;
    drop(running);
    let Parts { method, headers, .. } = &request.parts;
    let response = compression::compress_if_accepted(hub, &sender, method, headers, response?);
    open.respond(response, is_read)
}

async fn dispatch(
    hub: &Hub,
    user: AuthenticatedUser,
    share: Option<Arc<RequestShare>>,
    target: RequestTarget,
    request: &BufferedRequest,
) -> Result<Response, ApiError> {
    match target {
        RequestTarget::Unknown => Err(ApiError::resource_not_found()),
        // Tokens, backups and revocations are done in one's own name.
        RequestTarget::Admin { .. } if user.impersonator.is_some() => {
            let verb = request.parts.method.as_str().to_ascii_lowercase();
            Err(ApiError::forbidden_path(&user.info.user, &verb, request.parts.uri.path()))
        }
        RequestTarget::Admin { endpoint } => {
            let path = request.parts.uri.path();
            admin_endpoints::handle(hub, &user.info, &endpoint, path, request).await
        }
        RequestTarget::Metrics => access_reviews::metrics(hub, &user.info, request),
        RequestTarget::Resource(path) if access_reviews::is_review(&path) => {
            access_reviews::handle(hub, &user.info, &path, request)
        }
        RequestTarget::Resource(path) if token_requests::is_token_request(&path) => {
            token_requests::handle(hub, &user, &path, request)
        }
        RequestTarget::Resource(path) => {
            ResourceRequest::handle(hub, user, share, path, request).await
        }
        target if request.parts.method == Method::GET || request.parts.method == Method::HEAD => {
            let path = request.parts.uri.path();
            if !allows_anonymous(&target) && !hub.inner.authorize_path(&user.info, "get", path) {
                return Err(ApiError::forbidden_path(&user.info.user, "get", path));
            }
            discovery_endpoints::handle(hub, &target, request)
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Paths that need no authorization.
fn allows_anonymous(target: &RequestTarget) -> bool {
    matches!(target, RequestTarget::Health { .. } | RequestTarget::Version)
}
