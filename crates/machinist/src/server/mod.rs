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
mod enrol;
mod figures;
mod folder;
mod listen;
mod page;
mod program;
mod registry;
mod reload;
mod reply;
mod sockets;
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

use crate::figures::Page;
use board::Board;
pub use door::Access;
use door::Door;
use enrol::Registrar;
pub use figures::Figures;
pub use folder::Folder;
use page::{Pages, Source};
pub use program::Program;
pub use sockets::{Inherited, Place, inherited};
use tls::Certificate;
pub use token_file::{NAME as TOKEN_FILE, TokenFile};
use tokens::{HomeTokens, Tokens};

/// How often files are looked at that may change under the server: certificates, tokens.
const FILES_EVERY: Duration = Duration::from_secs(1);

/// Where and how to listen.
#[derive(Debug, Clone)]
pub struct Listen {
    /// With TLS.
    pub secure: Option<Place>,
    /// Without.
    pub insecure: Option<Place>,
    /// Where figures are served, if anywhere.
    pub metrics: Option<Place>,
    /// The figures: whoever runs the server may show them elsewhere.
    pub figures: Figures,
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
    /// Where the API is and whom to trust.
    Known {
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
pub struct Enrolment {
    /// Where they reach the server.
    pub url: String,
    /// Whom they are to trust there, as PEM.
    pub authority: String,
    /// The file that this is in, if it is; it may be replaced at any time.
    pub authority_file: Option<PathBuf>,
}

impl Enrolment {
    fn sealing(&self, pool: String, paths: Vec<String>) -> SealingConfig {
        let file = self.authority_file.as_deref();
        // One that is being replaced is read the next time.
        let read = file.and_then(|file| std::fs::read_to_string(file).ok());
        let read = read.filter(|text| !text.trim().is_empty());
        let authority = read.unwrap_or_else(|| self.authority.clone());
        SealingConfig { pool, url: self.url.clone(), ca_bundle: authority, paths }
    }
}

/// How to serve out of the API.
#[derive(Debug, Clone)]
pub struct Options {
    /// The namespace of the system's own objects.
    pub namespace: String,
    /// The namespace of provisioning tokens and enrolments.
    pub access_namespace: String,
    /// How new machines reach the API.
    pub introduction: Introduction,
    /// Whether a home without a ControllerConfig is served too.
    pub may_lack_controller_config: bool,
    /// How answers are split, if they are.
    pub enrolment: Option<Enrolment>,
    /// The program that machines complete their first boot with, if they get it here.
    pub program: Option<Program>,
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
    let figures = listen.figures.clone();
    let certificate = certificate(&identity).await?;
    let begin = async {
        let (mut tokens, mut registrar) = (None, None);
        if listen.access.tokens || options.enrolment.is_some() {
            let namespace = options.access_namespace.as_str();
            let home = HomeTokens::follow(client.clone(), namespace, &mut tasks).await;
            tokens = Some(Tokens::Home(Box::new(home)));
        }
        if options.enrolment.is_some() {
            let (client, namespace) = (client.clone(), options.access_namespace.as_str());
            registrar = Some(Registrar::of_home(client, namespace, &mut tasks).await?);
        }
        let program = options.program.clone();
        let board = Board::new(client, options);
        board.begin(&mut tasks, figures.clone()).await;
        anyhow::Ok((board, tokens, registrar, program))
    };
    let (board, tokens, registrar, program) = tokio::select! {
        begun = begin => begun?,
        () = stop.cancelled() => return Ok(()),
    };
    let acceptor = acceptor(&listen, &certificate, registrar.as_ref())?;
    let (source, door) = (Source::Board(Box::new(board)), Door::new(listen.access.clone(), tokens));
    let pages = Pages::new(source, door, listen.unknown_pool, figures, registrar);
    let pages = pages.with_program(program);
    serve(pages, listen, identity, (certificate, acceptor), ready, stop).await
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
    let certificate = certificate(&identity).await?;
    let figures = listen.figures.clone();
    let registrar = folder.enrolment.is_some().then(Registrar::alone).transpose()?;
    let acceptor = acceptor(&listen, &certificate, registrar.as_ref())?;
    let tokens = Tokens::File(TokenFile::new(folder.base.join(TOKEN_FILE)));
    let program = folder.program.clone();
    let source = Source::Folder(Arc::new(folder));
    let door = Door::new(listen.access.clone(), Some(tokens));
    let pages = Pages::new(source, door, listen.unknown_pool, figures, registrar);
    let pages = pages.with_program(program);
    serve(pages, listen, identity, (certificate, acceptor), |_| {}, stop).await
}

/// The certificate to begin with.
async fn certificate(identity: &Identity) -> Result<Certificate> {
    match identity {
        Identity::Given(certificate) => Ok(certificate.clone()),
        Identity::Files { certificate, key } => {
            let pair = reload::read(certificate, key).await;
            Certificate::new(&pair.context("failed to load serving cert")?)
                .context("failed to load serving cert")
        }
    }
}

fn acceptor(
    listen: &Listen,
    certificate: &Certificate,
    registrar: Option<&Registrar>,
) -> Result<TlsAcceptor> {
    listen.tls.acceptor(certificate, registrar.map(Registrar::authority))
}

async fn serve(
    pages: Pages,
    listen: Listen,
    identity: Identity,
    (certificate, acceptor): (Certificate, TlsAcceptor),
    ready: impl FnOnce(Listening),
    stop: CancellationToken,
) -> Result<()> {
    let pages = Arc::new(pages);
    let (mut serving, mut beside) = (JoinSet::new(), JoinSet::new());
    let mut listening = Listening::default();
    let most = listen.access.connections;
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
    if let Some(place) = &listen.metrics {
        let listener = sockets::listen(place, "--metrics-listen-address").await?;
        let page = Page { sources: vec![listen.figures.source()], health: None };
        beside.spawn(page.serve(listener));
    }
    if let Identity::Files { certificate: file, key } = identity {
        beside.spawn(reload::follow(file, key, certificate, FILES_EVERY));
    }
    ready(listening);
    while serving.join_next().await.is_some() {}
    Ok(())
}
