//! Who may read the metrics of a process: the decision for one request, and how tokens are reviewed.
//!
//! The model is kube-rbac-proxy: a bearer token is verified with a TokenReview, and its user with a SubjectAccessReview for
//! `get` on the path `/metrics`. Pure; the shell (`crates/machinist/src/metrics`) asks the API server and keeps the clock.

pub mod review_budget;
pub mod review_cache;

use std::net::SocketAddr;

/// The path that a SubjectAccessReview asks for.
pub const METRICS_PATH: &str = "/metrics";
/// The longest token that is reviewed. Tokens of service accounts have about 1 KiB.
pub const MAX_TOKEN_LENGTH: usize = 8 * 1024;

/// How a listener is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerProtection {
    /// Plain HTTP for everyone who can connect.
    Open,
    /// HTTPS, and metrics only for clients whose token allows it.
    Authenticated,
}

/// What the command line says about the protection of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProtectionFlags {
    /// `--metrics-secure`, or a certificate was given.
    pub secure: bool,
    /// `--metrics-insecure`.
    pub insecure: bool,
    /// Whether the process is connected to an API server that can verify tokens.
    pub has_api_server: bool,
}

/// The protection of a listener: without flags, only a loopback address is open.
///
/// # Errors
/// The listener needs authentication, and nobody can verify tokens.
pub fn protection(
    address: SocketAddr,
    flags: ProtectionFlags,
) -> Result<ListenerProtection, String> {
    if flags.insecure {
        return Ok(ListenerProtection::Open);
    }
    if !flags.secure && address.ip().to_canonical().is_loopback() {
        return Ok(ListenerProtection::Open);
    }
    if !flags.has_api_server {
        return Err(format!(
            "--metrics-listen {address}: this process is connected to no API server that could verify tokens: listen \
             on a loopback address without TLS, or serve metrics to everyone with --metrics-insecure"
        ));
    }
    Ok(ListenerProtection::Authenticated)
}

/// What a client asks for.
#[derive(Debug, Clone, Copy)]
pub struct MetricsRequest<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// The header `Authorization`; `None` if there is none, an empty text if it is no text.
    pub authorization: Option<&'a str>,
}

/// What the reviews of a token found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReviewResult {
    /// The user may read metrics.
    Allowed,
    /// The token belongs to nobody: it is wrong, expired or revoked.
    Unauthenticated,
    /// The token is valid, and its user may not read metrics.
    Forbidden {
        /// The user.
        user: String,
    },
    /// The token was not reviewed, because too many others are.
    Throttled,
    /// The API server could not be asked.
    Failed,
}

/// What is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsPage {
    /// The metrics.
    Metrics,
    /// That the process lives.
    Healthz,
    /// Whether it is ready, with what fails right now if the client may know that.
    Readyz {
        /// Whether failures are listed. They name objects of the cluster.
        details: bool,
    },
}

/// What to do with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsDecision<'a> {
    /// Serve a page.
    Serve(MetricsPage),
    /// Review this token, then decide again.
    Review(&'a str),
    /// Reject the request.
    Reject(MetricsRejection),
}

/// Why a request is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsRejection {
    /// There is no such page.
    NotFound,
    /// Pages are only read.
    MethodNotAllowed,
    /// The request has no token.
    NoToken,
    /// The header has another scheme, or its token has characters or a length that no token has.
    MalformedToken,
    /// The token belongs to nobody.
    InvalidToken,
    /// The user may not read metrics.
    Forbidden {
        /// The user.
        user: String,
    },
    /// Too many unknown tokens at once.
    Throttled,
    /// The API server could not be asked.
    ReviewFailed,
}

impl MetricsRejection {
    /// The status code.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NoToken | Self::MalformedToken | Self::InvalidToken => 401,
            Self::Forbidden { .. } => 403,
            Self::Throttled | Self::ReviewFailed => 503,
        }
    }

    /// The cause and the remedy. Never contains the token.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::NotFound => "not found: the pages are /metrics, /healthz and /readyz".to_owned(),
            Self::MethodNotAllowed => "method not allowed: use GET".to_owned(),
            Self::NoToken => {
                "unauthorized: /metrics needs a token: send the header Authorization: Bearer TOKEN"
                    .to_owned()
            }
            Self::MalformedToken => {
                "unauthorized: the header Authorization has no bearer token: send Bearer TOKEN"
                    .to_owned()
            }
            Self::InvalidToken => {
                "unauthorized: the token is wrong, expired or revoked: create a new one".to_owned()
            }
            Self::Forbidden { user } => format!(
                "forbidden: {user} may not get /metrics: bind it to ClusterRole machinist-metrics-reader; for a hub, \
                 create a token with machinist hub token --role metrics"
            ),
            Self::Throttled => {
                "unavailable: too many unknown tokens were sent: try again in a few seconds"
                    .to_owned()
            }
            Self::ReviewFailed => {
                "unavailable: the API server could not verify the token: the log of this process gives the reason"
                    .to_owned()
            }
        }
    }
}

/// Decides about a request. `review` is what the reviews of its token found, if they are known.
#[must_use]
pub fn decide<'a>(
    protection: ListenerProtection,
    request: MetricsRequest<'a>,
    review: Option<&ReviewResult>,
) -> MetricsDecision<'a> {
    use MetricsDecision::{Reject, Review, Serve};
    let is_open = protection == ListenerProtection::Open;
    let page = match request.path {
        METRICS_PATH => MetricsPage::Metrics,
        "/healthz" => MetricsPage::Healthz,
        "/readyz" => MetricsPage::Readyz { details: is_open },
        _ => return Reject(MetricsRejection::NotFound),
    };
    if !matches!(request.method, "GET" | "HEAD") {
        return Reject(MetricsRejection::MethodNotAllowed);
    }
    let token = request.authorization.map(bearer_token);
    match page {
        _ if is_open => Serve(page),
        MetricsPage::Healthz => Serve(page),
        // A probe without a token, or with one that does not count, is answered all the same.
        MetricsPage::Readyz { .. } => match (token, review) {
            (Some(Some(token)), None) => Review(token),
            (_, review) => {
                Serve(MetricsPage::Readyz { details: review == Some(&ReviewResult::Allowed) })
            }
        },
        MetricsPage::Metrics => match (token, review) {
            (None, _) => Reject(MetricsRejection::NoToken),
            (Some(None), _) => Reject(MetricsRejection::MalformedToken),
            (Some(Some(token)), None) => Review(token),
            (Some(Some(_)), Some(result)) => match result {
                ReviewResult::Allowed => Serve(page),
                ReviewResult::Unauthenticated => Reject(MetricsRejection::InvalidToken),
                ReviewResult::Forbidden { user } => {
                    Reject(MetricsRejection::Forbidden { user: user.clone() })
                }
                ReviewResult::Throttled => Reject(MetricsRejection::Throttled),
                ReviewResult::Failed => Reject(MetricsRejection::ReviewFailed),
            },
        },
    }
}

/// The token of a header: the characters of RFC 6750, and no more than tokens have.
fn bearer_token(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    (scheme.eq_ignore_ascii_case("bearer")
        && !token.is_empty()
        && token.len() <= MAX_TOKEN_LENGTH
        && token.bytes().all(is_valid))
    .then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ListenerProtection::{Authenticated, Open};
    use MetricsDecision::{Reject, Review, Serve};

    fn ask(path: &str, authorization: Option<&str>, review: Option<&ReviewResult>) -> String {
        let request = MetricsRequest { method: "GET", path, authorization };
        match decide(Authenticated, request, review) {
            Serve(page) => format!("{page:?}"),
            Review(token) => format!("review {token}"),
            Reject(rejection) => rejection.status().to_string(),
        }
    }

    #[test]
    fn only_a_reviewed_token_reads_metrics() {
        let forbidden = ReviewResult::Forbidden { user: "u".to_owned() };
        let token = Some("Bearer abc.DEF-_~+/=");
        for (authorization, review, expected) in [
            (None, None, "401"),
            (None, Some(&ReviewResult::Allowed), "401"),
            (Some(""), None, "401"),
            (Some("Bearer"), None, "401"),
            (Some("Bearer  "), None, "401"),
            (Some("Basic abc"), None, "401"),
            (Some("Basic abc"), Some(&ReviewResult::Allowed), "401"),
            (Some("Bearer a b"), None, "401"),
            (Some("Bearer a\u{e9}"), None, "401"),
            (token, None, "review abc.DEF-_~+/="),
            (Some("bearer x"), None, "review x"),
            (token, Some(&ReviewResult::Allowed), "Metrics"),
            (token, Some(&ReviewResult::Unauthenticated), "401"),
            (token, Some(&forbidden), "403"),
            (token, Some(&ReviewResult::Throttled), "503"),
            (token, Some(&ReviewResult::Failed), "503"),
        ] {
            let found = ask("/metrics", authorization, review);
            assert_eq!(found, expected, "{authorization:?} {review:?}");
        }
    }

    #[test]
    fn probes_need_no_token_and_show_failures_only_to_readers() {
        let forbidden = ReviewResult::Forbidden { user: "u".to_owned() };
        for (path, authorization, review, expected) in [
            ("/healthz", None, None, "Healthz"),
            ("/healthz", Some("Bearer x"), None, "Healthz"),
            ("/readyz", None, None, "Readyz { details: false }"),
            ("/readyz", Some("nonsense"), None, "Readyz { details: false }"),
            ("/readyz", Some("Bearer x"), None, "review x"),
            ("/readyz", Some("Bearer x"), Some(&forbidden), "Readyz { details: false }"),
            ("/readyz", Some("Bearer x"), Some(&ReviewResult::Failed), "Readyz { details: false }"),
            ("/readyz", Some("Bearer x"), Some(&ReviewResult::Allowed), "Readyz { details: true }"),
            ("/", None, None, "404"),
            ("/metrics/", Some("Bearer x"), Some(&ReviewResult::Allowed), "404"),
        ] {
            assert_eq!(ask(path, authorization, review), expected, "{path} {authorization:?}");
        }
    }

    #[test]
    fn an_open_listener_serves_everyone_and_nothing_is_written() {
        for (method, path, expected) in [
            ("GET", "/metrics", Serve(MetricsPage::Metrics)),
            ("HEAD", "/metrics", Serve(MetricsPage::Metrics)),
            ("GET", "/readyz", Serve(MetricsPage::Readyz { details: true })),
            ("POST", "/metrics", Reject(MetricsRejection::MethodNotAllowed)),
            ("GET", "/metrics/x", Reject(MetricsRejection::NotFound)),
        ] {
            let request = MetricsRequest { method, path, authorization: None };
            assert_eq!(decide(Open, request, None), expected, "{method} {path}");
        }
    }

    #[test]
    fn a_token_of_a_megabyte_is_not_reviewed() {
        for (length, expected) in
            [(MAX_TOKEN_LENGTH, true), (MAX_TOKEN_LENGTH + 1, false), (1 << 20, false)]
        {
            let header = format!("Bearer {}", "a".repeat(length));
            let request = MetricsRequest {
                method: "GET",
                path: METRICS_PATH,
                authorization: Some(header.as_str()),
            };
            let is_reviewed = matches!(decide(Authenticated, request, None), Review(_));
            assert_eq!(is_reviewed, expected, "{length}");
        }
    }

    #[test]
    fn only_a_loopback_address_is_open_by_itself() {
        let flags =
            |secure, insecure, has_api_server| ProtectionFlags { secure, insecure, has_api_server };
        for (address, flags, expected) in [
            ("127.0.0.1:1", flags(false, false, true), Ok(Open)),
            ("127.0.0.1:1", flags(false, false, false), Ok(Open)),
            ("[::1]:1", flags(false, false, true), Ok(Open)),
            ("[::ffff:127.0.0.1]:1", flags(false, false, true), Ok(Open)),
            ("127.0.0.1:1", flags(true, false, true), Ok(Authenticated)),
            ("127.0.0.1:1", flags(true, false, false), Err(())),
            ("0.0.0.0:1", flags(false, false, true), Ok(Authenticated)),
            ("[::]:1", flags(false, false, true), Ok(Authenticated)),
            ("10.0.0.1:1", flags(false, false, true), Ok(Authenticated)),
            ("10.0.0.1:1", flags(false, false, false), Err(())),
            ("10.0.0.1:1", flags(false, true, false), Ok(Open)),
        ] {
            let found = protection(address.parse().unwrap(), flags);
            assert_eq!(found.map_err(drop), expected, "{address} {flags:?}");
        }
    }
}
