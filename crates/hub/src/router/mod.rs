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
mod body_checks;
mod content_negotiation;
mod create;
mod delete;
mod discovery_endpoints;
mod machine_endpoint;
mod node_identity;
mod offload;
mod read;
mod resource_request;
mod response;
mod selection;
mod token_endpoints;
mod watch;
mod watch_encoder;
mod write;

use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::request::Parts;
use http::{Method, header};

use crate::auth::{UserInfo, tokens};
use crate::body;
use crate::hub::Hub;
use crate::request::{self, RequestTarget};
use crate::status::ApiError;
use resource_request::ResourceRequest;

/// The peer of a connection. The server puts it into the extensions of each request.
#[derive(Debug, Clone)]
pub enum PeerCertificate {
    /// The user of a verified client certificate.
    Trusted(UserInfo),
    /// A client certificate that failed verification.
    Untrusted,
}

/// In the extensions of a response: the client was authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authenticated;

impl Hub {
    /// The API. Requests are authenticated by a [`Peer`] in their extensions or a bearer token.
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
    let is_authenticated = matches!(user, Ok(Some(_)));
    let mut response = match route(&hub, user, target, parts, body).await {
        Ok(response) => response,
        Err(error) => {
            if error.code >= 500 {
                tracing::warn!(code = error.code, message = error.message, "request failed");
            }
            response::error_response(&error)
        }
    };
    hub.inner.metrics.observe_request(verb, response.status().as_u16(), started.elapsed());
    if is_authenticated {
        response.extensions_mut().insert(Authenticated);
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
}

async fn route(
    hub: &Hub,
    user: Result<Option<UserInfo>, ()>,
    target: RequestTarget,
    parts: Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let path = parts.uri.path().to_owned();
    // Only authenticated clients may send a body. It is read to its end whatever the response will
    // be: a client that is cut off while it sends does not see the reason.
    let is_authenticated = matches!(user, Ok(Some(_)));
    let body = if is_authenticated {
        hub.inner.body_reader.read(body).await?
    } else {
        body::BufferedBody::default()
    };
    let request = BufferedRequest { parts, body };
    let user = match user {
        Ok(Some(user)) => user,
        Ok(None) if allows_anonymous(&target) => {
            return discovery_endpoints::handle(hub, &target, &request);
        }
        Ok(None) | Err(()) => return Err(ApiError::unauthorized()),
    };
    match target {
        RequestTarget::Unknown => Err(ApiError::resource_not_found()),
        RequestTarget::Admin { endpoint } => {
            admin_endpoints::handle(hub, &user, &endpoint, &path, &request).await
        }
        RequestTarget::Resource(path) if access_reviews::is_review(&path) => {
            access_reviews::handle(hub, &user, &path, &request)
        }
        RequestTarget::Resource(path) => ResourceRequest::handle(hub, user, path, &request).await,
        target if request.parts.method == Method::GET || request.parts.method == Method::HEAD => {
            discovery_endpoints::handle(hub, &target, &request)
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Paths that need no authorization.
fn allows_anonymous(target: &RequestTarget) -> bool {
    matches!(target, RequestTarget::Health { .. } | RequestTarget::Version)
}

/// Authenticates a request. `None` means anonymous; wrong credentials are an error.
fn authenticate(hub: &Hub, parts: &Parts) -> Result<Option<UserInfo>, ()> {
    let peer = parts.extensions.get::<PeerCertificate>();
    if let Some(PeerCertificate::Trusted(user)) = peer {
        return Ok(Some(user.clone()));
    }
    let Some(value) = parts.headers.get(header::AUTHORIZATION) else {
        return if peer.is_some() { Err(()) } else { Ok(None) };
    };
    let text = value.to_str().map_err(|_| ())?;
    let (scheme, token) = text.trim().split_once(' ').ok_or(())?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(());
    }
    authenticate_token(hub, token.trim()).map(Some).ok_or(())
}

fn authenticate_token(hub: &Hub, token: &str) -> Option<UserInfo> {
    let key = format!("{}{}", tokens::TOKEN_KEY_PREFIX, tokens::token_id(token)?);
    let entry = hub.inner.store.get(&key)?;
    let record: tokens::TokenRecord = serde_json::from_slice(&entry.value).ok()?;
    tokens::authenticate(token, &record, jiff::Timestamp::now().as_second())
}
