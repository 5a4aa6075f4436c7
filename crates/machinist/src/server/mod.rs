//! The machine config server: Ignition configs for machines on their first boot.
//!
//! ```text
//!  API ─── board (one watch a kind) ─┐
//!                                    ├─ answers (bytes, made once) ─ page ─ listen (TLS, plain) ─→ machine
//!  folder ─ folder (files, stamps) ──┘
//! ```
//!
//! `door` decides with tokens, networks and limits who gets an answer at all. What is in an answer, and who gets which, is decided in `machinist_core::serve`. An answer is made when it is first
//! asked for, and made again when something that it was made of changes; otherwise it comes from memory. When the API
//! goes away, what is known goes on being served.

mod access;
mod binary;
mod directory;
mod enrol;
mod http_response;
mod image_registry;
mod listen;
mod metrics;
mod reload;
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
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::metrics::MetricsEndpoint;
use access::AccessControl;
pub use access::AccessOptions;
pub use binary::ServedBinary;
pub use directory::ManifestDirectory;
use enrol::EnrolmentRegistrar;
pub use metrics::ServerMetrics;
use routes::{ConfigSource, Routes};
pub use sockets::{InheritedSockets, ListenAddress, inherited_sockets};
use state::ServerState;
use tls::ConfigServerCertificate;
pub use token_file::{TOKEN_FILE_NAME as TOKEN_FILE, TokenFile};
use tokens::{ApiTokens, TokenStore};

/// How often files are looked at that may change under the server: certificates, tokens.
const FILE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Where and how to listen.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// With TLS.
    pub secure: Option<ListenAddress>,
    /// Without.
    pub insecure: Option<ListenAddress>,
    /// Where figures are served, if anywhere.
    pub metrics_listen: Option<ListenAddress>,
    /// The figures: whoever runs the server may show them elsewhere.
    pub metrics_registry: ServerMetrics,
    /// What is spoken with TLS.
    pub tls: tls::ServerTlsSettings,
    /// The status for a pool that there is none of.
    pub unknown_pool_status: u16,
    /// Who gets an answer.
    pub access: AccessOptions,
}

/// Where the server's certificate comes from.
#[derive(Debug, Clone)]
pub enum ServingIdentity {
    /// Out of files, which may be replaced at any time.
    Files {
        /// The certificate, and those between it and the CA.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// From whoever runs the server.
    Provided(ConfigServerCertificate),
}

/// How new machines reach the API.
#[derive(Debug, Clone)]
pub enum ApiAccess {
    /// Out of files that may change.
    Files {
        /// The address of the API.
        api_server: String,
        /// A folder with `token` and `ca.crt`.
        folder: PathBuf,
    },
    /// Where the API is and whom to trust.
    Static {
        /// The address of the API.
        api_server: String,
        /// The CA.
        authority: String,
        /// A file with the token that machines join with, where they are to; else there is nothing secret.
        token: Option<PathBuf>,
    },
}

/// How machines get the sealed halves of their configs.
#[derive(Debug, Clone)]
pub struct EnrolmentOptions {
    /// Where they reach the server.
    pub url: String,
    /// Whom they are to trust there, as PEM.
    pub ca: String,
    /// The file that this is in, if it is; it may be replaced at any time.
    pub ca_file: Option<PathBuf>,
}

impl EnrolmentOptions {
    fn sealing(&self, pool: String, paths: Vec<String>) -> SealingConfig {
        let file = self.ca_file.as_deref();
        // One that is being replaced is read the next time.
        let read = file.and_then(|file| std::fs::read_to_string(file).ok());
        let read = read.filter(|text| !text.trim().is_empty());
        let authority = read.unwrap_or_else(|| self.ca.clone());
        SealingConfig { pool, url: self.url.clone(), ca_bundle: authority, paths }
    }
}

/// How to serve out of the API.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The namespace of the system's own objects.
    pub namespace: String,
    /// The namespace of provisioning tokens and enrolments.
    pub access_namespace: String,
    /// How new machines reach the API.
    pub api_access: ApiAccess,
    /// Whether a home without a ControllerConfig is served too.
    pub controller_config_optional: bool,
    /// How answers are split, if they are.
    pub enrolment: Option<EnrolmentOptions>,
    /// The program that machines complete their first boot with, if they get it here.
    pub binary: Option<ServedBinary>,
}

/// Where a server really listens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListenAddresses {
    /// With TLS.
    pub secure: Option<SocketAddr>,
    /// Without.
    pub insecure: Option<SocketAddr>,
}

/// Serves out of the API until `stop` ends. It begins to listen when it has seen everything once, and says so.
///
/// # Errors
/// It cannot begin: an address is taken, a certificate cannot be read.
pub async fn start(
    client: Client,
    options: ServerOptions,
    listen: ListenOptions,
    identity: ServingIdentity,
    ready: impl FnOnce(ListenAddresses),
    stop: CancellationToken,
) -> Result<()> {
    let mut tasks = JoinSet::new();
    let figures = listen.metrics_registry.clone();
    let certificate = certificate(&identity).await?;
    let begin = async {
        let (mut tokens, mut registrar) = (None, None);
        if listen.access.require_token || options.enrolment.is_some() {
            let namespace = options.access_namespace.as_str();
            let home = ApiTokens::start_watch(client.clone(), namespace, &mut tasks).await;
            tokens = Some(TokenStore::Api(Box::new(home)));
        }
        if options.enrolment.is_some() {
            let (client, namespace) = (client.clone(), options.access_namespace.as_str());
            registrar = Some(EnrolmentRegistrar::with_api(client, namespace, &mut tasks).await?);
        }
        let program = options.binary.clone();
        let board = ServerState::new(client, options);
        board.start(&mut tasks, figures.clone()).await;
        anyhow::Ok((board, tokens, registrar, program))
    };
    let (board, tokens, registrar, program) = tokio::select! {
        begun = begin => begun?,
        () = stop.cancelled() => return Ok(()),
    };
    let acceptor = acceptor(&listen, &certificate, registrar.as_ref())?;
    let (source, door) =
        (ConfigSource::Api(Box::new(board)), AccessControl::new(listen.access.clone(), tokens));
    let pages = Routes::new(source, door, listen.unknown_pool_status, figures, registrar);
    let pages = pages.with_binary(program);
    serve(pages, listen, identity, (certificate, acceptor), ready, stop).await
}

/// Serves out of a folder until `stop` ends.
///
/// # Errors
/// It cannot begin: an address is taken, a certificate cannot be read.
pub async fn bootstrap(
    folder: ManifestDirectory,
    listen: ListenOptions,
    identity: ServingIdentity,
    ready: impl FnOnce(ListenAddresses),
    stop: CancellationToken,
) -> Result<()> {
    let certificate = certificate(&identity).await?;
    let figures = listen.metrics_registry.clone();
    let registrar = folder.enrolment.is_some().then(EnrolmentRegistrar::in_memory).transpose()?;
    let acceptor = acceptor(&listen, &certificate, registrar.as_ref())?;
    let tokens = TokenStore::File(TokenFile::new(folder.base.join(TOKEN_FILE)));
    let program = folder.binary.clone();
    let source = ConfigSource::Directory(Arc::new(folder));
    let door = AccessControl::new(listen.access.clone(), Some(tokens));
    let pages = Routes::new(source, door, listen.unknown_pool_status, figures, registrar);
    let pages = pages.with_binary(program);
    serve(pages, listen, identity, (certificate, acceptor), ready, stop).await
}

/// The certificate to begin with.
async fn certificate(identity: &ServingIdentity) -> Result<ConfigServerCertificate> {
    match identity {
        ServingIdentity::Provided(certificate) => Ok(certificate.clone()),
        ServingIdentity::Files { certificate, key } => {
            let pair = reload::read(certificate, key).await;
            ConfigServerCertificate::new(&pair.context("failed to load serving cert")?)
                .context("failed to load serving cert")
        }
    }
}

fn acceptor(
    listen: &ListenOptions,
    certificate: &ConfigServerCertificate,
    registrar: Option<&EnrolmentRegistrar>,
) -> Result<TlsAcceptor> {
    listen.tls.acceptor(certificate, registrar.map(EnrolmentRegistrar::ca_pem))
}

async fn serve(
    pages: Routes,
    listen: ListenOptions,
    identity: ServingIdentity,
    (certificate, acceptor): (ConfigServerCertificate, TlsAcceptor),
    ready: impl FnOnce(ListenAddresses),
    stop: CancellationToken,
) -> Result<()> {
    let pages = Arc::new(pages);
    let (mut serving, mut beside) = (JoinSet::new(), JoinSet::new());
    let mut listening = ListenAddresses::default();
    let most = listen.access.max_connections;
    if let Some(place) = &listen.secure {
        let listener = sockets::listen(place, "--secure-port").await?;
        listening.secure = Some(listener.local_addr()?);
        let (pages, stop) = (Arc::clone(&pages), stop.clone());
        serving.spawn(listen::run(listener, Some(acceptor), pages, most, stop));
    }
    if let Some(place) = &listen.insecure {
        let listener = sockets::listen(place, "--insecure-port").await?;
        listening.insecure = Some(listener.local_addr()?);
        serving.spawn(listen::run(listener, None, Arc::clone(&pages), most, stop.clone()));
    }
    if let Some(place) = &listen.metrics_listen {
        let listener = sockets::listen(place, "--metrics-listen").await?;
        let page =
            MetricsEndpoint { sources: vec![listen.metrics_registry.source()], health: None };
        beside.spawn(page.serve(listener));
    }
    if let ServingIdentity::Files { certificate: file, key } = identity {
        beside.spawn(reload::watch_files(file, key, certificate, FILE_POLL_INTERVAL));
    }
    ready(listening);
    while serving.join_next().await.is_some() {}
    Ok(())
}
