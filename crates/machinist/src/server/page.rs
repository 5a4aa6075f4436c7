//! From a request to its answer: the shell around `machinist_core::serve`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use machinist_core::serve::{Asked, Refusal, Route, etcd_index, route, served_version};

use super::answers::{Answers, Made, Outcome};
use super::board::Board;
use super::door::Door;
use super::figures::Figures;
use super::folder::Folder;

type Answer = Response<Full<Bytes>>;

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
}

/// What a request was about, for the log and the figures.
#[derive(Debug, Default)]
struct Account {
    pool: String,
    is_known: bool,
    version: String,
    config: String,
    token: String,
}

impl Pages {
    pub(super) fn new(source: Source, door: Door, unknown_pool: u16, figures: Figures) -> Self {
        let unknown_pool = StatusCode::from_u16(unknown_pool).unwrap_or(StatusCode::NOT_FOUND);
        Self { source, door, unknown_pool, figures }
    }

    /// The answer to a request.
    pub(super) async fn answer(&self, head: &Parts, peer: SocketAddr) -> Answer {
        let query = head.uri.query();
        match route(head.method.as_str(), head.uri.path(), query) {
            Route::Health => empty(StatusCode::OK),
            Route::NotFound => empty(StatusCode::NOT_FOUND),
            Route::MethodNotAllowed => empty(StatusCode::METHOD_NOT_ALLOWED),
            Route::BadPath => empty(StatusCode::BAD_REQUEST),
            Route::Moved(place) => moved(&place),
            Route::Config { pool } => self.config(&pool, head, peer).await,
        }
    }

    async fn config(&self, pool: &str, head: &Parts, peer: SocketAddr) -> Answer {
        let start = Instant::now();
        let mut account = Account { pool: pool.to_owned(), ..Account::default() };
        let outcome = self.made(pool, head, peer, &mut account).await;
        let answer = match &outcome {
            Ok(made) => whole(made, &head.headers).await,
            Err(refusal) => self.refused(refusal),
        };
        self.record(&account, head, peer, &answer, outcome.err(), start);
        answer
    }

    async fn made(
        &self,
        pool: &str,
        head: &Parts,
        peer: SocketAddr,
        account: &mut Account,
    ) -> Outcome<Arc<Made>> {
        let token = self.door.enter(pool, head, peer.ip())?;
        if let Some(token) = &token {
            account.token.clone_from(&token.id);
        }
        let text = |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
        let version = served_version(text(header::ACCEPT), text(header::USER_AGENT))?;
        account.version = version.to_string();
        let etcd_index = etcd_index::asked(pool, head.uri.query())?;
        let answers = self.source.pool(pool).await?;
        account.is_known = true;
        answers.config_name().clone_into(&mut account.config);
        let made = answers.answer(&Asked { version, etcd_index }).await?;
        if let Some(token) = token.filter(|_| head.method == Method::GET) {
            self.door.record(&token).await?;
        }
        Ok(made)
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
        let pool: String = account.pool.chars().take(100).collect();
        tracing::info!(
            target: "machinist::server::audit",
            ?pool,
            %peer,
            status,
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
