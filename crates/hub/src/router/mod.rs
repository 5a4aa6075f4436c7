//! The thin shell over everything: a request comes in, an answer goes out.
//!
//! ```text
//! request ─ who? (auth) ─→ what? (request) ─ may they? (roles) ─→ read | write | delete | watch ─→ answer
//! ```
//!
//! The router is a `tower::Service`, so a `kube::Client` in the same process needs no socket.

mod accept;
mod answer;
mod beside;
mod body;
mod call;
mod check;
mod create;
mod delete;
mod lines;
mod own;
mod protobuf;
mod read;
mod reviews;
mod root;
mod select;
mod watch;
mod write;

use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::request::Parts;
use http::{Method, header};

use crate::auth::{Identity, tokens};
use crate::hub::Hub;
use crate::request::{self, Target};
use crate::status::ApiError;
pub(crate) use body::Bodies;
use call::Call;

/// Who is at the other end of a connection, put into the extensions of its requests by the server.
#[derive(Debug, Clone)]
pub enum Peer {
    /// The one that a trusted client certificate names.
    Known(Identity),
    /// A client certificate that is not to be trusted.
    Untrusted,
}

/// In the extensions of an answer: the one who asked proved who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identified;

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
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let target = request::target(parts.uri.path());
    let verb = call::verb_word(&target, &parts);
    let who = identify(&hub, &parts);
    let known = matches!(who, Ok(Some(_)));
    let mut response = match route(&hub, who, target, parts, body).await {
        Ok(response) => response,
        Err(error) => {
            if error.code >= 500 {
                tracing::warn!(code = error.code, message = error.message, "request failed");
            }
            answer::error(&error)
        }
    };
    hub.inner.figures.answered(verb, response.status().as_u16(), started.elapsed());
    if known {
        response.extensions_mut().insert(Identified);
    }
    response
}

/// A request, its body read.
struct Incoming {
    parts: Parts,
    body: body::Whole,
}

impl Incoming {
    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

async fn route(
    hub: &Hub,
    who: Result<Option<Identity>, ()>,
    target: Target,
    parts: Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let path = parts.uri.path().to_owned();
    // Bodies are read of those who are known, and to their end, whatever the answer will be: a
    // client that is cut off while it sends does not see why.
    let known = matches!(who, Ok(Some(_)));
    let body = if known { hub.inner.bodies.read(body).await? } else { body::Whole::default() };
    let request = Incoming { parts, body };
    let who = match who {
        Ok(Some(who)) => who,
        Ok(None) if is_public(&target) => return root::answer(hub, &target, &request),
        Ok(None) | Err(()) => return Err(ApiError::unauthorized()),
    };
    match target {
        Target::Unknown => Err(ApiError::resource_not_found()),
        Target::Own { endpoint } => own::answer(hub, &who, &endpoint, &path, &request).await,
        Target::Resource(path) if reviews::is_review(&path) => {
            reviews::answer(hub, &who, &path, &request)
        }
        Target::Resource(path) => Call::answer(hub, who, path, &request).await,
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
fn identify(hub: &Hub, parts: &Parts) -> Result<Option<Identity>, ()> {
    let peer = parts.extensions.get::<Peer>();
    if let Some(Peer::Known(who)) = peer {
        return Ok(Some(who.clone()));
    }
    let Some(value) = parts.headers.get(header::AUTHORIZATION) else {
        return if peer.is_some() { Err(()) } else { Ok(None) };
    };
    let text = value.to_str().map_err(|_| ())?;
    let (scheme, token) = text.trim().split_once(' ').ok_or(())?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(());
    }
    identify_token(hub, token.trim()).map(Some).ok_or(())
}

fn identify_token(hub: &Hub, token: &str) -> Option<Identity> {
    let key = format!("{}{}", tokens::PREFIX, tokens::id(token)?);
    let entry = hub.inner.store.get(&key)?;
    let record: tokens::Record = serde_json::from_slice(&entry.value).ok()?;
    tokens::identify(token, &record, jiff::Timestamp::now().as_second())
}
