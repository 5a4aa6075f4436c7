//! From a request to its answer: the shell around `machinist_core::serve`.

mod enrol;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use machinist_core::ignition::IgnitionVersion;
use machinist_core::serve::enrol::id_for_pool;
use machinist_core::serve::route::{binary_route, sealed_route};
use machinist_core::serve::{
    ConfigHalf, ConfigRequest, ServeError, ServerRoute, etcd_index, route, served_version,
};
use machinist_hub::auth::certificates::user_of_certificate;

use super::access::AccessControl;
use super::binary::ServedBinary;
use super::directory::ManifestDirectory;
use super::enrol::EnrolmentRegistrar;
use super::http_response::{HttpResponse, config_response, empty_response, redirect};
use super::listen::Peer;
use super::metrics::ServerMetrics;
use super::responses::{CachedBody, PoolResponses, ServeResult};
use super::state::ServerState;

/// Where answers come from.
#[derive(Debug)]
pub(super) enum ConfigSource {
    Api(Box<ServerState>),
    Directory(Arc<ManifestDirectory>),
}

impl ConfigSource {
    async fn pool(&self, name: &str) -> ServeResult<Arc<PoolResponses>> {
        match self {
            Self::Api(board) => board.pool(name),
            Self::Directory(folder) => folder.pool(name).await,
        }
    }
}

/// All pages.
#[derive(Debug)]
pub(super) struct Routes {
    source: ConfigSource,
    access: AccessControl,
    unknown_pool: StatusCode,
    metrics: ServerMetrics,
    /// Knows who may have the sealed halves, where answers are split.
    registrar: Option<EnrolmentRegistrar>,
    /// What machines complete their first boot with, if they get it here.
    binary: Option<ServedBinary>,
}

/// What a request was about, for the log and the figures.
#[derive(Debug, Default)]
struct AccessLogEntry {
    pool: String,
    is_known: bool,
    version: String,
    config: String,
    token: String,
    /// What was asked for, if not the open part of a config.
    part: &'static str,
    /// The id of the machine's key, once it is known.
    machine: String,
}

impl Routes {
    pub(super) fn new(
        source: ConfigSource,
        door: AccessControl,
        unknown_pool: u16,
        figures: ServerMetrics,
        registrar: Option<EnrolmentRegistrar>,
    ) -> Self {
        let unknown_pool = StatusCode::from_u16(unknown_pool).unwrap_or(StatusCode::NOT_FOUND);
        Self { source, access: door, unknown_pool, metrics: figures, registrar, binary: None }
    }

    /// With a program for machines.
    pub(super) fn with_binary(self, program: Option<ServedBinary>) -> Self {
        Self { binary: program, ..self }
    }

    /// The answer to a request.
    pub(super) async fn handle(&self, request: Request<Incoming>, peer: &Peer) -> HttpResponse {
        let (head, body) = request.into_parts();
        let (method, path, query) = (head.method.as_str(), head.uri.path(), head.uri.query());
        let split = self.registrar.as_ref().and_then(|_| sealed_route(method, path));
        let handed = self.binary.as_ref().and_then(|_| binary_route(method, path));
        let start = Instant::now();
        let answer = match split.or(handed).unwrap_or_else(|| route(method, path, query)) {
            ServerRoute::Binary => {
                match (self.access.check_address(peer.address.ip()), &self.binary) {
                    (Err(refusal), _) => self.refusal_response(&refusal),
                    (Ok(()), Some(program)) => program.response(),
                    (Ok(()), None) => empty_response(StatusCode::NOT_FOUND),
                }
            }
            ServerRoute::Config { pool } => return self.serve_config(&pool, &head, peer, "").await,
            ServerRoute::Sealed { pool } => {
                return self.serve_config(&pool, &head, peer, "sealed").await;
            }
            ServerRoute::Enrol { pool } => return self.enrol(&pool, &head, body, peer).await,
            // Asked all the time, by those who keep us alive.
            ServerRoute::Health => return empty_response(StatusCode::OK),
            ServerRoute::NotFound => empty_response(StatusCode::NOT_FOUND),
            ServerRoute::MethodNotAllowed => empty_response(StatusCode::METHOD_NOT_ALLOWED),
            ServerRoute::BadPath => empty_response(StatusCode::BAD_REQUEST),
            ServerRoute::Redirect(place) => redirect(&place),
        };
        self.log_request(&AccessLogEntry::default(), &head, peer.address, &answer, None, start);
        answer
    }

    async fn serve_config(
        &self,
        pool: &str,
        head: &Parts,
        peer: &Peer,
        part: &'static str,
    ) -> HttpResponse {
        let start = Instant::now();
        let mut account =
            AccessLogEntry { pool: pool.to_owned(), part, ..AccessLogEntry::default() };
        let outcome = match part {
            "sealed" => self.sealed_config(pool, head, peer, &mut account).await,
            _ => self.open_config(pool, head, peer, &mut account).await,
        };
        let answer = match &outcome {
            Ok(made) => config_response(made, &head.headers).await,
            Err(refusal) => self.refusal_response(refusal),
        };
        self.log_request(&account, head, peer.address, &answer, outcome.err(), start);
        answer
    }

    /// What everyone gets, or everyone with a token.
    async fn open_config(
        &self,
        pool: &str,
        head: &Parts,
        peer: &Peer,
        account: &mut AccessLogEntry,
    ) -> ServeResult<Arc<CachedBody>> {
        let token = self.access.authorize(pool, head, peer.address.ip())?;
        if let Some(token) = &token {
            account.token.clone_from(&token.id);
        }
        let text = |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
        let version = served_version(text(header::ACCEPT), text(header::USER_AGENT))?;
        let made = self.cached_response(pool, head, version, ConfigHalf::Public, account).await?;
        if let Some(token) = token.filter(|_| head.method == Method::GET) {
            self.access.count_use(&token).await?;
        }
        Ok(made)
    }

    /// What machines get that have shown who they are.
    async fn sealed_config(
        &self,
        pool: &str,
        head: &Parts,
        peer: &Peer,
        account: &mut AccessLogEntry,
    ) -> ServeResult<Arc<CachedBody>> {
        self.access.check_address(peer.address.ip())?;
        let Some(shown) = &peer.certificate else {
            return Err(Arc::new(ServeError::Unauthorized("no certificate came with the request")));
        };
        let who = user_of_certificate(shown)
            .map_err(|_| ServeError::Unauthorized("the certificate is none"))?;
        let Some(id) = id_for_pool(&who.user, &who.groups, pool) else {
            return Err(Arc::new(ServeError::Forbidden("the certificate is for another pool")));
        };
        id.clone_into(&mut account.machine);
        if !self.registrar.as_ref().is_some_and(|registrar| registrar.is_enrolled(id, pool)) {
            return Err(Arc::new(ServeError::Forbidden("the machine is not enrolled any more")));
        }
        self.cached_response(pool, head, IgnitionVersion::MAX, ConfigHalf::Sealed, account).await
    }

    async fn cached_response(
        &self,
        pool: &str,
        head: &Parts,
        version: IgnitionVersion,
        part: ConfigHalf,
        account: &mut AccessLogEntry,
    ) -> ServeResult<Arc<CachedBody>> {
        account.version = version.to_string();
        let etcd_index = etcd_index::requested_index(pool, head.uri.query())?;
        let answers = self.source.pool(pool).await?;
        account.is_known = true;
        answers.config_name().clone_into(&mut account.config);
        answers.response(&ConfigRequest { version, etcd_index, half: part }).await
    }

    fn refusal_response(&self, refusal: &ServeError) -> HttpResponse {
        let status = match refusal {
            ServeError::UnknownPool(_) => self.unknown_pool,
            refusal => {
                StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
        };
        let mut answer = empty_response(status);
        if let Some(seconds) = refusal.retry_after() {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer
    }

    /// One line for every answer: who, what, which config; never what is in it.
    fn log_request(
        &self,
        account: &AccessLogEntry,
        head: &Parts,
        peer: SocketAddr,
        answer: &HttpResponse,
        refusal: Option<Arc<ServeError>>,
        start: Instant,
    ) {
        let text = |name: HeaderName| {
            let value = head.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().chars().take(200).collect::<String>()
        };
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let status = answer.status().as_u16();
        let size = hyper::body::Body::size_hint(answer.body()).exact().unwrap_or_default();
        let short = |text: &str| text.chars().take(100).collect::<String>();
        // Without its query, in which a token may be.
        let (pool, path) = (short(&account.pool), short(head.uri.path()));
        tracing::info!(
            target: "machinist::server::audit",
            ?pool,
            %peer,
            status,
            method = head.method.as_str(),
            path,
            part = account.part,
            machine = account.machine,
            config = account.config,
            version = account.version,
            token = account.token,
            size,
            agent = text(header::USER_AGENT),
            accept = text(header::ACCEPT),
            reason = refusal.map(|refusal| refusal.to_string()),
            "answered"
        );
        let pool = if account.is_known { account.pool.as_str() } else { "" };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        self.metrics.record_response(pool, &account.version, status, size, start.elapsed());
    }
}
