//! The machine config server: Ignition configs for machines on their first boot.
//!
//! ```text
//!  API server ─ state (one watch per kind) ─┐
//!                                           ├─ responses (cached bytes) ─ routes ─ listen (TLS, plain) ─→ machine
//!  manifests ── directory (files, stamps) ──┘
//! ```
//!
//! `access` applies tokens, networks and limits to every request. `machinist_core::serve` decides what a response
//! contains and who gets which. A response is built on the first request and again when one of its inputs changes;
//! otherwise it comes from memory. While the API server is down, the cached responses are served. Called by
//! `machinist server` and `machinist up`.

mod access;
mod binary;
mod directory;
mod enrol;
mod http_response;
mod image_registry;
mod listen;
mod metrics;
mod responses;
mod routes;
mod sockets;
mod state;
pub mod tls;
mod token_file;
mod tokens;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use machinist_core::serve::enrol::SealingConfig;
use machinist_core::serve::seal::AnnotatedPaths;
use machinist_hub::failure_log::FailureLog;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::listen::connections::ConnectionLimits;
use crate::liveness::Liveness;
use crate::metrics::{MetricsEndpoint, MetricsSecurity, ProcessHealth, Readiness};
use crate::serving_certificate::{self, CertificateFiles, ServingCertificate};
use access::AccessControl;
pub use access::AccessOptions;
pub use binary::ServedBinary;
pub use directory::ManifestDirectory;
use enrol::EnrolmentRegistrar;
pub use metrics::ServerMetrics;
use routes::{ConfigSource, Routes};
pub use sockets::{InheritedSockets, ListenAddress, inherited_sockets};
use state::ServerState;
pub use token_file::{TOKEN_FILE_NAME as TOKEN_FILE, TokenFile};
use tokens::{ApiTokens, TokenStore};

/// How often files that may change are checked: certificates, tokens.
const FILE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Where and how to listen.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// The address with TLS.
    pub secure: Option<ListenAddress>,
    /// The address without TLS.
    pub insecure: Option<ListenAddress>,
    /// Where metrics are served, if at all.
    pub metrics_listen: Option<ListenAddress>,
    /// How the metrics are protected.
    pub metrics_security: MetricsSecurity,
    /// The metrics, which the caller may also serve elsewhere.
    pub metrics_registry: ServerMetrics,
    /// What fails in this process, the server's failures included.
    pub failures: FailureLog,
    /// Whether the loops make progress.
    pub(crate) liveness: Liveness,
    /// TLS versions and cipher suites.
    pub tls: tls::ServerTlsSettings,
    /// The HTTP status for an unknown pool.
    pub unknown_pool_status: u16,
    /// Who may send requests.
    pub access: AccessOptions,
}

/// Where the server's certificate comes from.
#[derive(Debug, Clone)]
pub enum ServingIdentity {
    /// Files, which are read again when they change.
    Files(CertificateFiles),
    /// A certificate from the caller.
    Provided(ServingCertificate),
}

/// How new machines connect to the API server.
#[derive(Debug, Clone)]
pub enum ApiAccess {
    /// From files, which are read again when they change.
    Files {
        /// The URL of the API server.
        api_server: String,
        /// A directory with `token` and `ca.crt`.
        directory: PathBuf,
    },
    /// Fixed values.
    Static {
        /// The URL of the API server.
        api_server: String,
        /// The CA certificates.
        authority: String,
        /// A file with the bootstrap token, if machines join. Without it, the kubeconfig contains no secret.
        token: Option<PathBuf>,
    },
}

/// How machines get the sealed parts of their configs.
#[derive(Debug, Clone)]
pub struct EnrolmentOptions {
    /// The URL at which machines reach the server.
    pub url: String,
    /// The CA certificates to trust there, as PEM.
    pub ca: String,
    /// The file of the CA certificates, if any; it is read again for every config.
    pub ca_file: Option<PathBuf>,
}

impl EnrolmentOptions {
    fn sealing(&self, pool: String, paths: AnnotatedPaths) -> SealingConfig {
        let file = self.ca_file.as_deref();
        // A file that is being replaced is read the next time.
        let read = file.and_then(|file| std::fs::read_to_string(file).ok());
        let read = read.filter(|text| !text.trim().is_empty());
        let authority = read.unwrap_or_else(|| self.ca.clone());
        SealingConfig { pool, url: self.url.clone(), ca_bundle: authority, paths }
    }
}

/// How to serve from the API server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The namespace of Machinist's own objects.
    pub namespace: String,
    /// The namespace of provisioning tokens and enrolments.
    pub access_namespace: String,
    /// How new machines connect to the API server.
    pub api_access: ApiAccess,
    /// Whether to serve without a ControllerConfig.
    pub controller_config_optional: bool,
    /// How configs are sealed, if at all.
    pub enrolment: Option<EnrolmentOptions>,
    /// The binary that machines download to complete their first boot, if any.
    pub binary: Option<ServedBinary>,
}

/// The addresses that a server listens on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListenAddresses {
    /// The address with TLS.
    pub secure: Option<SocketAddr>,
    /// The address without TLS.
    pub insecure: Option<SocketAddr>,
}

/// Serves from the API server until `stop`. It listens, and calls `ready`, when all objects are in the caches; metrics and
/// health are served from the start.
///
/// # Errors
/// It cannot start: an address is in use, or a certificate cannot be read.
pub async fn start(
    client: Client,
    options: ServerOptions,
    listen: ListenOptions,
    identity: ServingIdentity,
    ready: impl FnOnce(ListenAddresses),
    stop: CancellationToken,
) -> Result<()> {
    let mut tasks = JoinSet::new();
    let metrics = listen.metrics_registry.clone();
    let health = watch::Sender::new(ProcessHealth::Starting);
    serve_metrics(&listen, Some(client.clone()), &health, &mut tasks).await?;
    let failures = listen.failures.clone();
    let certificate = certificate(&identity).await?;
    let prepare = async {
        let (mut tokens, mut registrar) = (None, None);
        if listen.access.require_token || options.enrolment.is_some() {
            let namespace = options.access_namespace.as_str();
            let (client, failures) = (client.clone(), failures.clone());
            let api_tokens = ApiTokens::start_watch(client, namespace, &mut tasks, failures).await;
            tokens = Some(TokenStore::Api(Box::new(api_tokens)));
        }
        if options.enrolment.is_some() {
            let (client, namespace) = (client.clone(), options.access_namespace.as_str());
            let failures = failures.clone();
            let loaded = EnrolmentRegistrar::with_api(client, namespace, &mut tasks, failures);
            registrar = Some(loaded.await?);
        }
        let binary = options.binary.clone();
        let state = ServerState::new(client, options);
        state.start(&mut tasks, metrics.clone(), failures, &listen.liveness).await;
        anyhow::Ok((state, tokens, registrar, binary))
    };
    let (state, tokens, registrar, binary) = tokio::select! {
        prepared = prepare => prepared?,
        () = stop.cancelled() => return Ok(()),
    };
    let acceptor = acceptor(&listen, &certificate, registrar.as_ref())?;
    let (source, access) =
        (ConfigSource::Api(Box::new(state)), AccessControl::new(listen.access.clone(), tokens));
    let routes = Routes::new(source, access, listen.unknown_pool_status, metrics, registrar);
    let routes = routes.with_binary(binary);
    let ready = |listening| {
        health.send_replace(ProcessHealth::Ready);
        ready(listening);
    };
    serve(routes, listen, identity, (certificate, acceptor), None, ready, stop).await
}

/// Serves from a directory until `stop`.
///
/// # Errors
/// It cannot start: an address is in use, or a certificate cannot be read.
pub async fn bootstrap(
    directory: ManifestDirectory,
    listen: ListenOptions,
    identity: ServingIdentity,
    ready: impl FnOnce(ListenAddresses),
    stop: CancellationToken,
) -> Result<()> {
    let certificate = certificate(&identity).await?;
    let metrics = listen.metrics_registry.clone();
    let registrar =
        directory.enrolment.is_some().then(EnrolmentRegistrar::in_memory).transpose()?;
    let acceptor = acceptor(&listen, &certificate, registrar.as_ref())?;
    let tokens = TokenStore::File(TokenFile::new(directory.base.join(TOKEN_FILE)));
    let binary = directory.binary.clone();
    let source = ConfigSource::Directory(Arc::new(directory));
    let access = AccessControl::new(listen.access.clone(), Some(tokens));
    let routes = Routes::new(source, access, listen.unknown_pool_status, metrics, registrar);
    let routes = routes.with_binary(binary);
    let health = watch::Sender::new(ProcessHealth::Ready);
    serve(routes, listen, identity, (certificate, acceptor), Some(health), ready, stop).await
}

/// The certificate at the start.
async fn certificate(identity: &ServingIdentity) -> Result<ServingCertificate> {
    match identity {
        ServingIdentity::Provided(certificate) => Ok(certificate.clone()),
        ServingIdentity::Files(files) => {
            let pair = serving_certificate::read(files).await;
            ServingCertificate::new(&pair.context("failed to load serving cert")?)
                .context("failed to load serving cert")
        }
    }
}

fn acceptor(
    listen: &ListenOptions,
    certificate: &ServingCertificate,
    registrar: Option<&EnrolmentRegistrar>,
) -> Result<TlsAcceptor> {
    listen.tls.acceptor(certificate, registrar.map(EnrolmentRegistrar::ca_pem))
}

/// Serves metrics and health until the tasks end.
async fn serve_metrics(
    listen: &ListenOptions,
    client: Option<Client>,
    health: &watch::Sender<ProcessHealth>,
    tasks: &mut JoinSet<()>,
) -> Result<()> {
    let Some(address) = &listen.metrics_listen else { return Ok(()) };
    let listener = sockets::listen(address, "--metrics-listen").await?;
    let readiness = Readiness { health: health.subscribe(), failures: listen.failures.clone() };
    let endpoint = MetricsEndpoint { sources: vec![listen.metrics_registry.source()], readiness };
    endpoint.start(listener, &listen.metrics_security, client, tasks).await
}

async fn serve(
    routes: Routes,
    listen: ListenOptions,
    identity: ServingIdentity,
    (certificate, acceptor): (ServingCertificate, TlsAcceptor),
    metrics_health: Option<watch::Sender<ProcessHealth>>,
    ready: impl FnOnce(ListenAddresses),
    stop: CancellationToken,
) -> Result<()> {
    let routes = Arc::new(routes);
    let (mut serving, mut background) = (JoinSet::new(), JoinSet::new());
    let mut listening = ListenAddresses::default();
    let limits = ConnectionLimits {
        per_address: listen.access.max_connections,
        ..listen::CONNECTION_LIMITS
    };
    if let Some(address) = &listen.secure {
        let listener = sockets::listen(address, "--secure-port").await?;
        listening.secure = Some(listener.local_addr()?);
        let (routes, failures) = (Arc::clone(&routes), listen.failures.clone());
        let stop = stop.clone();
        serving.spawn(listen::run(listener, Some(acceptor), routes, limits, failures, stop));
    }
    if let Some(address) = &listen.insecure {
        let listener = sockets::listen(address, "--insecure-port").await?;
        listening.insecure = Some(listener.local_addr()?);
        let (routes, failures) = (Arc::clone(&routes), listen.failures.clone());
        serving.spawn(listen::run(listener, None, routes, limits, failures, stop.clone()));
    }
    // None if metrics are served already.
    if let Some(health) = &metrics_health {
        serve_metrics(&listen, None, health, &mut background).await?;
    }
    if let ServingIdentity::Files(files) = identity {
        let (interval, failures) = (FILE_POLL_INTERVAL, listen.failures.clone());
        background.spawn(serving_certificate::watch_files(files, certificate, interval, failures));
    }
    ready(listening);
    while serving.join_next().await.is_some() {}
    Ok(())
}
