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

mod answers;
mod board;
mod door;
mod figures;
mod folder;
mod listen;
mod page;
mod registry;
mod reload;
pub mod tls;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use board::Board;
pub use door::Access;
use door::{Door, Tokens};
pub use figures::Figures;
pub use folder::Folder;
use page::{Pages, Source};
use tls::Certificate;

/// How often files are looked at that may change under the server: certificates, tokens.
const FILES_EVERY: Duration = Duration::from_secs(1);

/// Where and how to listen.
#[derive(Debug, Clone)]
pub struct Listen {
    /// With TLS.
    pub secure: Option<SocketAddr>,
    /// Without.
    pub insecure: Option<SocketAddr>,
    /// Where figures are served, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// What is spoken with TLS.
    pub tls: tls::Settings,
    /// The status for a pool that there is none of.
    pub unknown_pool: u16,
    /// Who gets an answer.
    pub access: Access,
}

/// Where the server's certificate comes from.
#[derive(Debug, Clone)]
pub enum Identity {
    /// Out of files, which may be replaced at any time.
    Files {
        /// The certificate, and those between it and the CA.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// From whoever runs the server.
    Given(Certificate),
}

/// How new machines reach the API.
#[derive(Debug, Clone)]
pub enum Introduction {
    /// Out of files that may change.
    Files {
        /// The address of the API.
        api_server: String,
        /// A folder with `token` and `ca.crt`.
        folder: PathBuf,
    },
    /// Where the API is and whom to trust; nothing that is a secret.
    Public {
        /// The address of the API.
        api_server: String,
        /// The CA.
        authority: String,
    },
}

/// How to serve out of the API.
#[derive(Debug, Clone)]
pub struct Options {
    /// The namespace of the system's own objects.
    pub namespace: String,
    /// How new machines reach the API.
    pub introduction: Introduction,
    /// Whether a home without a ControllerConfig is served too.
    pub may_lack_controller_config: bool,
}

/// Where a server really listens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Listening {
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
    options: Options,
    listen: Listen,
    identity: Identity,
    ready: impl FnOnce(Listening),
    stop: CancellationToken,
) -> Result<()> {
    let mut tasks = JoinSet::new();
    let figures = Figures::default();
    let prepared = Prepared::new(&listen, &identity).await?;
    let begin = async {
        let mut tokens = None;
        if listen.access.tokens {
            tokens = Some(Tokens::follow(client.clone(), &options.namespace, &mut tasks).await);
        }
        let board = Board::new(client, options);
        board.begin(&mut tasks, figures.clone()).await;
        (board, tokens)
    };
    let (board, tokens) = tokio::select! {
        begun = begin => begun,
        () = stop.cancelled() => return Ok(()),
    };
    let door = Door::new(listen.access.clone(), tokens);
    let pages =
        Pages::new(Source::Board(Box::new(board)), door, listen.unknown_pool, figures.clone());
    serve(pages, figures, listen, identity, prepared, ready, stop).await
}

/// Serves out of a folder until `stop` ends.
///
/// # Errors
/// It cannot begin: an address is taken, a certificate cannot be read.
pub async fn bootstrap(
    folder: Folder,
    listen: Listen,
    identity: Identity,
    stop: CancellationToken,
) -> Result<()> {
    let prepared = Prepared::new(&listen, &identity).await?;
    let figures = Figures::default();
    let source = Source::Folder(Arc::new(folder));
    let door = Door::new(listen.access.clone(), None);
    let pages = Pages::new(source, door, listen.unknown_pool, figures.clone());
    serve(pages, figures, listen, identity, prepared, |_| {}, stop).await
}

/// What can go wrong before anything is served.
struct Prepared {
    certificate: Certificate,
    acceptor: tokio_rustls::TlsAcceptor,
}

impl Prepared {
    async fn new(listen: &Listen, identity: &Identity) -> Result<Self> {
        let certificate = match identity {
            Identity::Given(certificate) => certificate.clone(),
            Identity::Files { certificate, key } => {
                let pair = reload::read(certificate, key).await;
                Certificate::new(&pair.context("failed to load serving cert")?)
                    .context("failed to load serving cert")?
            }
        };
        let acceptor = listen.tls.acceptor(&certificate)?;
        Ok(Self { certificate, acceptor })
    }
}

async fn serve(
    pages: Pages,
    figures: Figures,
    listen: Listen,
    identity: Identity,
    prepared: Prepared,
    ready: impl FnOnce(Listening),
    stop: CancellationToken,
) -> Result<()> {
    let pages = Arc::new(pages);
    let (mut serving, mut beside) = (JoinSet::new(), JoinSet::new());
    let mut listening = Listening::default();
    if let Some(address) = listen.secure {
        let listener = bind(address, "--secure-port").await?;
        listening.secure = Some(listener.local_addr()?);
        let (pages, stop) = (Arc::clone(&pages), stop.clone());
        serving.spawn(listen::run(listener, Some(prepared.acceptor), pages, stop));
    }
    if let Some(address) = listen.insecure {
        let listener = bind(address, "--insecure-port").await?;
        listening.insecure = Some(listener.local_addr()?);
        serving.spawn(listen::run(listener, None, Arc::clone(&pages), stop.clone()));
    }
    if let Some(address) = listen.metrics {
        let listener = bind(address, "--metrics-listen-address").await?;
        beside.spawn(figures.serve(listener));
    }
    if let Identity::Files { certificate, key } = identity {
        beside.spawn(reload::follow(certificate, key, prepared.certificate, FILES_EVERY));
    }
    ready(listening);
    while serving.join_next().await.is_some() {}
    Ok(())
}

async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    let mut listener = TcpListener::bind(address).await;
    if listener.is_err() && address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        // Some machines have no IPv6 at all.
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port());
        listener = TcpListener::bind(any).await;
    }
    let listener = listener.with_context(|| format!("cannot listen on {address}; see {flag}"))?;
    let address = listener.local_addr()?;
    tracing::info!(%address, "listening ({})", flag.trim_start_matches("--"));
    Ok(listener)
}
