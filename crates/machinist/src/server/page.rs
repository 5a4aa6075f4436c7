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
use machinist_hub::auth::certificates::identity;

use super::answers::{Answers, Made, Outcome};
use super::board::Board;
use super::door::Door;
use super::enrol::Registrar;
use super::figures::Figures;
use super::folder::Folder;
use super::listen::Peer;
use super::program::Program;
use super::reply::{Answer, empty, moved, whole};

/// Where answers come from.
#[derive(Debug)]
pub(super) enum Source {
    Board(Box<Board>),
    Folder(Arc<Folder>),
}

impl Source {
    async fn pool(&self, name: &str) -> Outcome<Arc<Answers>> {
        match self {
            Self::Board(board) => board.pool(name),
            Self::Folder(folder) => folder.pool(name).await,
        }
    }
}

/// All pages.
#[derive(Debug)]
pub(super) struct Pages {
    source: Source,
    door: Door,
    unknown_pool: StatusCode,
    figures: Figures,
    /// Knows who may have the sealed halves, where answers are split.
    registrar: Option<Registrar>,
    /// What machines complete their first boot with, if they get it here.
    program: Option<Program>,
}

/// What a request was about, for the log and the figures.
#[derive(Debug, Default)]
struct Account {
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

impl Pages {
    pub(super) fn new(
        source: Source,
        door: Door,
        unknown_pool: u16,
        figures: Figures,
        registrar: Option<Registrar>,
    ) -> Self {
        let unknown_pool = StatusCode::from_u16(unknown_pool).unwrap_or(StatusCode::NOT_FOUND);
        Self { source, door, unknown_pool, figures, registrar, program: None }
    }

    /// With a program for machines.
    pub(super) fn with_program(self, program: Option<Program>) -> Self {
        Self { program, ..self }
    }

    /// The answer to a request.
    pub(super) async fn answer(&self, request: Request<Incoming>, peer: &Peer) -> Answer {
        let (head, body) = request.into_parts();
        let (method, path, query) = (head.method.as_str(), head.uri.path(), head.uri.query());
        let split = self.registrar.as_ref().and_then(|_| sealed_route(method, path));
        let handed = self.program.as_ref().and_then(|_| binary_route(method, path));
        let start = Instant::now();
        let answer = match split.or(handed).unwrap_or_else(|| route(method, path, query)) {
            ServerRoute::Binary => match (self.door.knock(peer.address.ip()), &self.program) {
                (Err(refusal), _) => self.refused(&refusal),
                (Ok(()), Some(program)) => program.answer(),
                (Ok(()), None) => empty(StatusCode::NOT_FOUND),
            },
            ServerRoute::Config { pool } => return self.config(&pool, &head, peer, "").await,
            ServerRoute::Sealed { pool } => return self.config(&pool, &head, peer, "sealed").await,
            ServerRoute::Enrol { pool } => return self.enrol(&pool, &head, body, peer).await,
            // Asked all the time, by those who keep us alive.
            ServerRoute::Health => return empty(StatusCode::OK),
            ServerRoute::NotFound => empty(StatusCode::NOT_FOUND),
            ServerRoute::MethodNotAllowed => empty(StatusCode::METHOD_NOT_ALLOWED),
            ServerRoute::BadPath => empty(StatusCode::BAD_REQUEST),
            ServerRoute::Redirect(place) => moved(&place),
        };
        self.record(&Account::default(), &head, peer.address, &answer, None, start);
        answer
    }

    async fn config(&self, pool: &str, head: &Parts, peer: &Peer, part: &'static str) -> Answer {
        let start = Instant::now();
        let mut account = Account { pool: pool.to_owned(), part, ..Account::default() };
        let outcome = match part {
            "sealed" => self.sealed(pool, head, peer, &mut account).await,
            _ => self.open(pool, head, peer, &mut account).await,
        };
        let answer = match &outcome {
            Ok(made) => whole(made, &head.headers).await,
            Err(refusal) => self.refused(refusal),
        };
        self.record(&account, head, peer.address, &answer, outcome.err(), start);
        answer
    }

    /// What everyone gets, or everyone with a token.
    async fn open(
        &self,
        pool: &str,
        head: &Parts,
        peer: &Peer,
        account: &mut Account,
    ) -> Outcome<Arc<Made>> {
        let token = self.door.enter(pool, head, peer.address.ip())?;
        if let Some(token) = &token {
            account.token.clone_from(&token.id);
        }
        let text = |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
        let version = served_version(text(header::ACCEPT), text(header::USER_AGENT))?;
        let made = self.made(pool, head, version, ConfigHalf::Public, account).await?;
        if let Some(token) = token.filter(|_| head.method == Method::GET) {
            self.door.record(&token).await?;
        }
        Ok(made)
    }

    /// What machines get that have shown who they are.
    async fn sealed(
        &self,
        pool: &str,
        head: &Parts,
        peer: &Peer,
        account: &mut Account,
    ) -> Outcome<Arc<Made>> {
        self.door.knock(peer.address.ip())?;
        let Some(shown) = &peer.certificate else {
            return Err(Arc::new(ServeError::Unauthorized("no certificate came with the request")));
        };
        let who =
            identity(shown).map_err(|_| ServeError::Unauthorized("the certificate is none"))?;
        let Some(id) = id_for_pool(&who.user, &who.groups, pool) else {
            return Err(Arc::new(ServeError::Forbidden("the certificate is for another pool")));
        };
        id.clone_into(&mut account.machine);
        if !self.registrar.as_ref().is_some_and(|registrar| registrar.is_enrolled(id, pool)) {
            return Err(Arc::new(ServeError::Forbidden("the machine is not enrolled any more")));
        }
        self.made(pool, head, IgnitionVersion::MAX, ConfigHalf::Sealed, account).await
    }

    async fn made(
        &self,
        pool: &str,
        head: &Parts,
        version: IgnitionVersion,
        part: ConfigHalf,
        account: &mut Account,
    ) -> Outcome<Arc<Made>> {
        account.version = version.to_string();
        let etcd_index = etcd_index::requested_index(pool, head.uri.query())?;
        let answers = self.source.pool(pool).await?;
        account.is_known = true;
        answers.config_name().clone_into(&mut account.config);
        answers.answer(&ConfigRequest { version, etcd_index, half: part }).await
    }

    fn refused(&self, refusal: &ServeError) -> Answer {
        let status = match refusal {
            ServeError::UnknownPool(_) => self.unknown_pool,
            refusal => {
                StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
        };
        let mut answer = empty(status);
        if let Some(seconds) = refusal.retry_after() {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer
    }

    /// One line for every answer: who, what, which config; never what is in it.
    fn record(
        &self,
        account: &Account,
        head: &Parts,
        peer: SocketAddr,
        answer: &Answer,
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
        self.figures.answered(pool, &account.version, status, size, start.elapsed());
    }
}
