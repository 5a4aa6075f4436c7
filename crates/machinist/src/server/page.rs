//! From a request to its answer: the shell around `machinist_core::serve`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use machinist_core::ignition::Version;
use machinist_core::serve::enrol::id_for_pool;
use machinist_core::serve::route::{parameter, sealed_route};
use machinist_core::serve::{Asked, Part, Refusal, Route, etcd_index, route, served_version};
use machinist_hub::auth::certificates::{Request as CertificateRequest, identity};

use super::answers::{Answers, Made, Outcome};
use super::board::Board;
use super::door::Door;
use super::enrol::{Application, Registrar, Told};
use super::figures::Figures;
use super::folder::Folder;
use super::listen::Peer;

type Answer = Response<Full<Bytes>>;

/// A request for a certificate is at most this large.
const REQUEST_SIZE: usize = 16 * 1024;
/// What a machine calls itself is at most this long.
const NAME_LENGTH: usize = 100;

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
        Self { source, door, unknown_pool, figures, registrar }
    }

    /// The answer to a request.
    pub(super) async fn answer(&self, request: Request<Incoming>, peer: &Peer) -> Answer {
        let (head, body) = request.into_parts();
        let (method, path, query) = (head.method.as_str(), head.uri.path(), head.uri.query());
        let split = self.registrar.as_ref().and_then(|_| sealed_route(method, path));
        let start = Instant::now();
        let answer = match split.unwrap_or_else(|| route(method, path, query)) {
            Route::Config { pool } => return self.config(&pool, &head, peer, "").await,
            Route::Sealed { pool } => return self.config(&pool, &head, peer, "sealed").await,
            Route::Enrol { pool } => return self.enrol(&pool, &head, body, peer).await,
            // Asked all the time, by those who keep us alive.
            Route::Health => return empty(StatusCode::OK),
            Route::NotFound => empty(StatusCode::NOT_FOUND),
            Route::MethodNotAllowed => empty(StatusCode::METHOD_NOT_ALLOWED),
            Route::BadPath => empty(StatusCode::BAD_REQUEST),
            Route::Moved(place) => moved(&place),
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
        let made = self.made(pool, head, version, Part::Open, account).await?;
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
            return Err(Arc::new(Refusal::Unauthorized("no certificate came with the request")));
        };
        let who = identity(shown).map_err(|_| Refusal::Unauthorized("the certificate is none"))?;
        let Some(id) = id_for_pool(&who.user, &who.groups, pool) else {
            return Err(Arc::new(Refusal::Forbidden("the certificate is for another pool")));
        };
        id.clone_into(&mut account.machine);
        if !self.registrar.as_ref().is_some_and(|registrar| registrar.is_enrolled(id, pool)) {
            return Err(Arc::new(Refusal::Forbidden("the machine is not enrolled any more")));
        }
        self.made(pool, head, Version::MAX, Part::Sealed, account).await
    }

    async fn made(
        &self,
        pool: &str,
        head: &Parts,
        version: Version,
        part: Part,
        account: &mut Account,
    ) -> Outcome<Arc<Made>> {
        account.version = version.to_string();
        let etcd_index = etcd_index::asked(pool, head.uri.query())?;
        let answers = self.source.pool(pool).await?;
        account.is_known = true;
        answers.config_name().clone_into(&mut account.config);
        answers.answer(&Asked { version, etcd_index, part }).await
    }

    /// A machine asks for a certificate.
    async fn enrol(&self, pool: &str, head: &Parts, body: Incoming, peer: &Peer) -> Answer {
        let start = Instant::now();
        let mut account = Account { pool: pool.to_owned(), part: "enrol", ..Account::default() };
        let outcome = self.told(pool, head, body, peer, &mut account).await;
        let answer = match &outcome {
            Ok(Told::Certificate(pem)) => Response::new(Full::from(pem.clone())),
            Ok(Told::Wait) => {
                let mut answer = empty(StatusCode::ACCEPTED);
                let seconds = HeaderValue::from(machinist_core::serve::refusal::RETRY_AFTER);
                answer.headers_mut().insert(header::RETRY_AFTER, seconds);
                answer
            }
            Err(refusal) => self.refused(refusal),
        };
        self.record(&account, head, peer.address, &answer, outcome.err(), start);
        answer
    }

    async fn told(
        &self,
        pool: &str,
        head: &Parts,
        body: Incoming,
        peer: &Peer,
        account: &mut Account,
    ) -> Outcome<Told> {
        let address = peer.address.ip();
        self.door.knock(address)?;
        let Some(registrar) = self.registrar.as_ref().filter(|_| peer.is_secure) else {
            return Err(Arc::new(Refusal::Forbidden("machines enrol over TLS only")));
        };
        self.source.pool(pool).await?;
        account.is_known = true;
        let body = Limited::new(body, REQUEST_SIZE).collect().await;
        let body = body.map_err(|error| Refusal::BadRequest(error.to_string()))?.to_bytes();
        let text = str::from_utf8(&body).map_err(|_| Refusal::BadRequest("no text".into()))?;
        let request = CertificateRequest::parse(text);
        let request = request.map_err(|error| Refusal::BadRequest(error.to_string()))?;
        account.machine = request.key_hash();
        // A token is not needed, but one that is wrong is no token. Whoever is in asks again with one that is used up.
        let asks_again = registrar.is_enrolled(&account.machine, pool);
        let has_token = head.headers.contains_key(header::AUTHORIZATION) && !asks_again;
        let token = match has_token {
            true => Some(self.door.admit(pool, head, address)?),
            false => None,
        };
        if let Some(token) = &token {
            account.token.clone_from(&token.id);
        }
        let name = parameter(head.uri.query(), "name").unwrap_or_default();
        let name: String = name.chars().filter(|c| !c.is_control()).take(NAME_LENGTH).collect();
        let application = Application {
            pool,
            request: &request,
            id: &account.machine,
            name: &name,
            address,
            token: token.as_ref().map(|token| token.id.as_str()),
        };
        let grant = async {
            match &token {
                Some(token) => self.door.record(token).await,
                None => Ok(()),
            }
        };
        Ok(registrar.apply(&application, grant).await?)
    }

    fn refused(&self, refusal: &Refusal) -> Answer {
        let status = match refusal {
            Refusal::UnknownPool(_) => self.unknown_pool,
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
        refusal: Option<Arc<Refusal>>,
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

async fn whole(made: &Made, headers: &HeaderMap) -> Answer {
    let packed = takes_gzip(headers);
    let (body, tag) = match packed {
        true => made.gzip().await,
        false => (made.body.clone(), made.tag.clone()),
    };
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == tag);
    let mut answer = match is_known {
        true => empty(StatusCode::NOT_MODIFIED),
        false => Response::new(Full::new(body)),
    };
    let head = answer.headers_mut();
    head.insert(header::ETAG, tag);
    head.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if !is_known {
        head.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if packed {
            head.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
    }
    answer
}

/// Whether the client says that it takes gzip.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let text = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    text.unwrap_or_default().split(',').any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_gzip = parts.next() == Some("gzip");
        let is_refused = parts.any(|part| {
            part.strip_prefix("q=").and_then(|q| q.parse::<f64>().ok()).is_some_and(|q| q <= 0.0)
        });
        is_gzip && !is_refused
    })
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    if status != StatusCode::NOT_MODIFIED {
        // Said also where there can be no body, as to HEAD.
        answer.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(0));
    }
    answer
}

fn moved(place: &str) -> Answer {
    let Ok(location) = HeaderValue::try_from(place) else { return empty(StatusCode::BAD_REQUEST) };
    // What people see whose browser does not follow.
    let shown = place.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&#34;");
    let text = format!("<a href=\"{shown}\">Temporary Redirect</a>.\n\n");
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let head = answer.headers_mut();
    head.insert(header::LOCATION, location);
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_gzip() {
        for (text, expected) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(text));
            assert_eq!(takes_gzip(&headers), expected, "{text}");
        }
    }
}
