//! HTTP routes: parses requests, lets `machinist_core::serve` decide, and logs every response.

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
use machinist_hub::auth::certificates::ClientCertificate;
use tracing::Instrument as _;

use super::access::AccessControl;
use super::binary::ServedBinary;
use super::directory::ManifestDirectory;
use super::enrol::EnrolmentRegistrar;
use super::http_response::{HttpResponse, config_response, empty_response, redirect};
use super::listen::Peer;
use super::metrics::ServerMetrics;
use super::responses::{CachedBody, PoolResponses, ServeResult};
use super::state::ServerState;

/// Where configs come from.
#[derive(Debug)]
pub(super) enum ConfigSource {
    Api(Box<ServerState>),
    Directory(Arc<ManifestDirectory>),
}

impl ConfigSource {
    async fn pool(&self, name: &str) -> ServeResult<Arc<PoolResponses>> {
        match self {
            Self::Api(state) => state.pool(name),
            Self::Directory(directory) => directory.pool(name).await,
        }
    }
}

/// All routes of the server.
#[derive(Debug)]
pub(super) struct Routes {
    source: ConfigSource,
    access: AccessControl,
    unknown_pool: StatusCode,
    metrics: ServerMetrics,
    /// Decides who may get the sealed parts, if configs are sealed.
    registrar: Option<EnrolmentRegistrar>,
    /// The binary that machines download to complete their first boot, if any.
    binary: Option<ServedBinary>,
}

/// What a request was about, for the log and the metrics.
#[derive(Debug, Default)]
struct AccessLogEntry {
    pool: String,
    is_known: bool,
    version: String,
    config: String,
    token: String,
    /// The requested part, unless it is the open part of a config.
    part: &'static str,
    /// The id of the machine's key, once it is known.
    machine: String,
}

impl Routes {
    pub(super) fn new(
        source: ConfigSource,
        access: AccessControl,
        unknown_pool: u16,
        metrics: ServerMetrics,
        registrar: Option<EnrolmentRegistrar>,
    ) -> Self {
        let unknown_pool = StatusCode::from_u16(unknown_pool).unwrap_or(StatusCode::NOT_FOUND);
        Self { source, access, unknown_pool, metrics, registrar, binary: None }
    }

    /// Adds a binary for machines.
    pub(super) fn with_binary(self, binary: Option<ServedBinary>) -> Self {
        Self { binary, ..self }
    }

    /// Handles a request.
    pub(super) async fn handle(&self, request: Request<Incoming>, peer: &Peer) -> HttpResponse {
        // The line of each response has these fields, too; a span adds them to everything else that is logged.
        let span =
            tracing::info_span!("request", peer = %peer.address, pool = tracing::field::Empty);
        self.handle_in_span(request, peer).instrument(span).await
    }

    async fn handle_in_span(&self, request: Request<Incoming>, peer: &Peer) -> HttpResponse {
        let (head, body) = request.into_parts();
        let (method, path, query) = (head.method.as_str(), head.uri.path(), head.uri.query());
        let sealed = self.registrar.as_ref().and_then(|_| sealed_route(method, path));
        let download = self.binary.as_ref().and_then(|_| binary_route(method, path));
        let start = Instant::now();
        let response = match sealed.or(download).unwrap_or_else(|| route(method, path, query)) {
            ServerRoute::Binary => {
                match (self.access.check_address(peer.address.ip()), &self.binary) {
                    (Err(refusal), _) => self.refusal_response(&refusal),
                    (Ok(()), Some(binary)) => binary.response(),
                    (Ok(()), None) => empty_response(StatusCode::NOT_FOUND),
                }
            }
            ServerRoute::Config { pool } => return self.serve_config(&pool, &head, peer, "").await,
            ServerRoute::Sealed { pool } => {
                return self.serve_config(&pool, &head, peer, "sealed").await;
            }
            ServerRoute::Enrol { pool } => return self.enrol(&pool, &head, body, peer).await,
            // Health probes are frequent, so they are not logged.
            ServerRoute::Health => return empty_response(StatusCode::OK),
            ServerRoute::NotFound => empty_response(StatusCode::NOT_FOUND),
            ServerRoute::MethodNotAllowed => empty_response(StatusCode::METHOD_NOT_ALLOWED),
            ServerRoute::BadPath => empty_response(StatusCode::BAD_REQUEST),
            ServerRoute::Redirect(location) => redirect(&head.method, &location),
        };
        self.log_request(&AccessLogEntry::default(), &head, peer.address, &response, None, start);
        response
    }

    async fn serve_config(
        &self,
        pool: &str,
        head: &Parts,
        peer: &Peer,
        part: &'static str,
    ) -> HttpResponse {
        let shown: String = pool.chars().take(100).collect();
        tracing::Span::current().record("pool", shown);
        let start = Instant::now();
        let mut entry = AccessLogEntry { pool: pool.to_owned(), part, ..AccessLogEntry::default() };
        let outcome = match part {
            "sealed" => self.sealed_config(pool, head, peer, &mut entry).await,
            _ => self.open_config(pool, head, peer, &mut entry).await,
        };
        let response = match &outcome {
            Ok(made) => config_response(made, &head.headers).await,
            Err(refusal) => self.refusal_response(refusal),
        };
        self.log_request(&entry, head, peer.address, &response, outcome.err(), start);
        response
    }

    /// The config, or the open part of a sealed one.
    async fn open_config(
        &self,
        pool: &str,
        head: &Parts,
        peer: &Peer,
        entry: &mut AccessLogEntry,
    ) -> ServeResult<Arc<CachedBody>> {
        let token = self.access.authorize(pool, head, peer.address.ip())?;
        if let Some(token) = &token {
            entry.token.clone_from(&token.id);
        }
        let text = |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
        let version = served_version(text(header::ACCEPT), text(header::USER_AGENT))?;
        let made = self.cached_response(pool, head, version, ConfigHalf::Public, entry).await?;
        if let Some(token) = token.filter(|_| head.method == Method::GET) {
            self.access.count_use(&token).await?;
        }
        Ok(made)
    }

    /// The sealed part, for enrolled machines.
    async fn sealed_config(
        &self,
        pool: &str,
        head: &Parts,
        peer: &Peer,
        entry: &mut AccessLogEntry,
    ) -> ServeResult<Arc<CachedBody>> {
        self.access.check_address(peer.address.ip())?;
        let Some(certificate) = &peer.certificate else {
            return Err(Arc::new(ServeError::Unauthorized(
                "the request has no client certificate",
            )));
        };
        let who = ClientCertificate::from_der(certificate)
            .map_err(|_| ServeError::Unauthorized("the client certificate is invalid"))?
            .user;
        let Some(id) = id_for_pool(&who.user, &who.groups, pool) else {
            return Err(Arc::new(ServeError::Forbidden("the certificate is for another pool")));
        };
        id.clone_into(&mut entry.machine);
        if !self.registrar.as_ref().is_some_and(|registrar| registrar.is_enrolled(id, pool)) {
            return Err(Arc::new(ServeError::Forbidden("the machine is no longer enrolled")));
        }
        self.cached_response(pool, head, IgnitionVersion::MAX, ConfigHalf::Sealed, entry).await
    }

    async fn cached_response(
        &self,
        pool: &str,
        head: &Parts,
        version: IgnitionVersion,
        part: ConfigHalf,
        entry: &mut AccessLogEntry,
    ) -> ServeResult<Arc<CachedBody>> {
        entry.version = version.to_string();
        let etcd_index = etcd_index::requested_index(pool, head.uri.query())?;
        let responses = self.source.pool(pool).await?;
        entry.is_known = true;
        responses.config_name().clone_into(&mut entry.config);
        responses.response(&ConfigRequest { version, etcd_index, half: part }).await
    }

    fn refusal_response(&self, refusal: &ServeError) -> HttpResponse {
        let status = match refusal {
            ServeError::UnknownPool(_) => self.unknown_pool,
            refusal => {
                StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
        };
        let mut response = empty_response(status);
        if let Some(seconds) = refusal.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// Logs one line per response: who requested what, never the contents.
    fn log_request(
        &self,
        entry: &AccessLogEntry,
        head: &Parts,
        peer: SocketAddr,
        response: &HttpResponse,
        refusal: Option<Arc<ServeError>>,
        start: Instant,
    ) {
        let text = |name: HeaderName| {
            let value = head.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().chars().take(200).collect::<String>()
        };
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let status = response.status().as_u16();
        let size = hyper::body::Body::size_hint(response.body()).exact().unwrap_or_default();
        let short = |text: &str| text.chars().take(100).collect::<String>();
        // Without the query, which may contain a token.
        let (pool, path) = (short(&entry.pool), short(head.uri.path()));
        tracing::info!(
            target: "machinist::server::audit",
            ?pool,
            %peer,
            status,
            method = head.method.as_str(),
            path,
            part = entry.part,
            machine = entry.machine,
            config = entry.config,
            version = entry.version,
            token = entry.token,
            size,
            agent = text(header::USER_AGENT),
            accept = text(header::ACCEPT),
            reason = refusal.map(|refusal| refusal.to_string()),
            "answered"
        );
        let pool = if entry.is_known { entry.pool.as_str() } else { "" };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        self.metrics.record_response(pool, &entry.version, status, size, start.elapsed());
    }
}
