//! The thin shell over everything: a request comes in, an answer goes out.
//!
//! ```text
//! request ─ who? (auth) ─→ what? (request) ─ may they? (roles) ─→ read | write | delete | watch ─→ answer
//! ```
//!
//! The router is a `tower::Service`, so a `kube::Client` in the same process needs no socket.

mod accept;
mod answer;
mod body;
mod call;
mod delete;
mod own;
mod read;
mod reviews;
mod root;
mod select;
mod watch;
mod write;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{Method, header};

use crate::auth::{Identity, tokens};
use crate::hub::Hub;
use crate::request::{self, Target};
use crate::status::ApiError;
use call::Call;

/// Who is at the other end of a connection, put into the extensions of its requests by the server.
#[derive(Debug, Clone)]
pub enum Peer {
    /// The one that a trusted client certificate names.
    Known(Identity),
    /// A client certificate that is not to be trusted.
    Untrusted,
}

impl Hub {
    /// The API. Requests say who they are by a [`Peer`] in their extensions or a bearer token.
    pub fn router(&self) -> Router {
        Router::new().fallback(handle).with_state(self.clone())
    }

    /// The API for one user, without a socket: for tests and for controllers in the same process.
    pub fn router_as(&self, who: Identity) -> Router {
        self.router().layer(axum::Extension(Peer::Known(who)))
    }
}

async fn handle(State(hub): State<Hub>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let request = Incoming { parts, body };
    match route(&hub, request).await {
        Ok(response) => response,
        Err(error) => {
            if error.code >= 500 {
                tracing::warn!(code = error.code, message = error.message, "request failed");
            }
            answer::error(&error)
        }
    }
}

/// A request, its body apart.
struct Incoming {
    parts: http::request::Parts,
    body: Body,
}

impl Incoming {
    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

async fn route(hub: &Hub, request: Incoming) -> Result<Response, ApiError> {
    let path = request.parts.uri.path().to_owned();
    let target = request::target(&path);
    let who = match identify(hub, &request) {
        Ok(Some(who)) => who,
        Ok(None) if is_public(&target) => return root::answer(hub, &target, &request),
        Ok(None) | Err(()) => return Err(ApiError::unauthorized()),
    };
    match target {
        Target::Unknown => Err(ApiError::resource_not_found()),
        Target::Own { endpoint } => own::answer(hub, &who, &endpoint, &path, request).await,
        Target::Resource(path) if reviews::is_review(&path) => {
            reviews::answer(hub, &who, &path, request).await
        }
        Target::Resource(path) => Call::answer(hub, who, path, request).await,
        target if request.parts.method == Method::GET || request.parts.method == Method::HEAD => {
            root::answer(hub, &target, &request)
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// What everyone may ask.
fn is_public(target: &Target) -> bool {
    matches!(target, Target::Health { .. } | Target::Version)
}

/// Who is asking; none if nobody said so, an error if they cannot prove it.
fn identify(hub: &Hub, request: &Incoming) -> Result<Option<Identity>, ()> {
    if let Some(value) = request.parts.headers.get(header::AUTHORIZATION) {
        let text = value.to_str().map_err(|_| ())?;
        let (scheme, token) = text.trim().split_once(' ').ok_or(())?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(());
        }
        return identify_token(hub, token.trim()).map(Some).ok_or(());
    }
    match request.parts.extensions.get::<Peer>() {
        Some(Peer::Known(who)) => Ok(Some(who.clone())),
        Some(Peer::Untrusted) => Err(()),
        None => Ok(None),
    }
}

fn identify_token(hub: &Hub, token: &str) -> Option<Identity> {
    let key = format!("{}{}", tokens::PREFIX, tokens::id(token)?);
    let entry = hub.inner.store.get(&key)?;
    let record: tokens::Record = serde_json::from_slice(&entry.value).ok()?;
    tokens::identify(token, &record, jiff::Timestamp::now().as_second())
}
