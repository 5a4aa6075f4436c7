//! Maps a request to a route.

use super::first_boot::BINARY_ROUTE;

/// A route of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerRoute {
    /// The health check.
    Health,
    /// The config of a pool.
    Config {
        /// The name of the pool. Untrusted.
        pool: String,
    },
    /// The sealed half of a pool's config.
    Sealed {
        /// The name of the pool. Untrusted.
        pool: String,
    },
    /// Enrolment.
    Enrol {
        /// The name of the pool. Untrusted.
        pool: String,
    },
    /// The binary with which machines complete their first boot.
    Binary,
    /// The route has another path.
    Redirect(String),
    /// The route does not exist.
    NotFound,
    /// The method is not allowed.
    MethodNotAllowed,
    /// The path is malformed.
    BadPath,
}

/// The route of a request.
#[must_use]
pub fn route(method: &str, path: &str, query: Option<&str>) -> ServerRoute {
    let clean = clean(path);
    if clean != path || path == "/config" {
        let place = if clean == "/config" { "/config/" } else { &clean };
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        return ServerRoute::Redirect(format!("{place}{query}"));
    }
    if method != "GET" && method != "HEAD" {
        return ServerRoute::MethodNotAllowed;
    }
    if path == "/healthz" {
        return ServerRoute::Health;
    }
    if !path.starts_with("/config/") {
        return ServerRoute::NotFound;
    }
    match percent_decode(path) {
        Some(path) => ServerRoute::Config { pool: base(&path).to_owned() },
        None => ServerRoute::BadPath,
    }
}

/// The routes that exist only if configs are split: `/sealed/POOL` and `/enrol/POOL`.
#[must_use]
pub fn sealed_route(method: &str, path: &str) -> Option<ServerRoute> {
    let (page, pool) = path.strip_prefix('/')?.split_once('/')?;
    let is_one = !pool.is_empty() && !pool.contains('/');
    let pool = || percent_decode(pool).filter(|_| is_one);
    match (page, method) {
        ("sealed", "GET" | "HEAD") => {
            Some(pool().map_or(ServerRoute::NotFound, |pool| ServerRoute::Sealed { pool }))
        }
        ("enrol", "POST") => {
            Some(pool().map_or(ServerRoute::NotFound, |pool| ServerRoute::Enrol { pool }))
        }
        ("sealed" | "enrol", _) => Some(ServerRoute::MethodNotAllowed),
        _ => None,
    }
}

/// The route that exists only if the server provides the binary.
#[must_use]
pub fn binary_route(method: &str, path: &str) -> Option<ServerRoute> {
    match (path == BINARY_ROUTE, method) {
        (true, "GET" | "HEAD") => Some(ServerRoute::Binary),
        (true, _) => Some(ServerRoute::MethodNotAllowed),
        (false, _) => None,
    }
}

/// The path without empty, `.` and `..` segments; a trailing slash is kept.
fn clean(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    let end = if path.ends_with('/') && !kept.is_empty() { "/" } else { "" };
    format!("/{}{end}", kept.join("/"))
}

/// The last non-empty segment.
fn base(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// Decodes percent escapes; `None` if they are malformed.
#[must_use]
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        bytes.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
        rest = after.get(2..)?;
    }
    String::from_utf8(bytes).ok()
}

/// The first value of a query parameter.
#[must_use]
pub fn query_parameter(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = query.unwrap_or_default().split('&');
    let mut values = pairs.filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (percent_decode(key)? == name).then(|| percent_decode(&value.replace('+', " ")))?
    });
    values.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pool: &str) -> ServerRoute {
        ServerRoute::Config { pool: pool.to_owned() }
    }

    fn moved(path: &str) -> ServerRoute {
        ServerRoute::Redirect(path.to_owned())
    }

    #[test]
    fn requests_map_to_routes() {
        for (method, path, expected) in [
            ("GET", "/config/worker", config("worker")),
            ("HEAD", "/config/worker", config("worker")),
            ("GET", "/config/worker/", config("worker")),
            ("GET", "/config/a/b", config("b")),
            ("GET", "/config/", config("config")),
            ("GET", "/config/w%20x", config("w x")),
            ("GET", "/config/%2e%2e", config("..")),
            ("GET", "/config/a%2Fb", config("b")),
            ("GET", "/config/%zz", ServerRoute::BadPath),
            ("GET", "/config/%ff", ServerRoute::BadPath),
            ("GET", "/config/%", ServerRoute::BadPath),
            ("GET", "/healthz", ServerRoute::Health),
            ("HEAD", "/healthz", ServerRoute::Health),
            ("GET", "/healthz/", ServerRoute::NotFound),
            ("GET", "/", ServerRoute::NotFound),
            ("GET", "/metrics", ServerRoute::NotFound),
            ("GET", "/configs/x", ServerRoute::NotFound),
            ("POST", "/config/worker", ServerRoute::MethodNotAllowed),
            ("DELETE", "/healthz", ServerRoute::MethodNotAllowed),
            ("PUT", "/nothing", ServerRoute::MethodNotAllowed),
            ("OPTIONS", "/config/worker", ServerRoute::MethodNotAllowed),
            ("GET", "/config", moved("/config/")),
            ("POST", "/config", moved("/config/")),
            ("GET", "//config/worker", moved("/config/worker")),
            ("GET", "/config/../healthz", moved("/healthz")),
            ("GET", "/config/../../..", moved("/")),
            ("GET", "/config//worker/", moved("/config/worker/")),
            ("GET", "/x/../config", moved("/config/")),
        ] {
            assert_eq!(route(method, path, None), expected, "{method} {path}");
        }
        assert_eq!(route("GET", "/config", Some("a=b")), moved("/config/?a=b"));
    }

    #[test]
    fn routes_of_a_split_config() {
        let pool = || "worker".to_owned();
        for (method, path, expected) in [
            ("GET", "/sealed/worker", Some(ServerRoute::Sealed { pool: pool() })),
            ("HEAD", "/sealed/worker", Some(ServerRoute::Sealed { pool: pool() })),
            ("POST", "/enrol/worker", Some(ServerRoute::Enrol { pool: pool() })),
            ("POST", "/sealed/worker", Some(ServerRoute::MethodNotAllowed)),
            ("GET", "/enrol/worker", Some(ServerRoute::MethodNotAllowed)),
            ("GET", "/sealed/", Some(ServerRoute::NotFound)),
            ("GET", "/sealed/a/b", Some(ServerRoute::NotFound)),
            ("GET", "/sealed/%zz", Some(ServerRoute::NotFound)),
            ("GET", "/sealed", None),
            ("GET", "/config/worker", None),
        ] {
            assert_eq!(sealed_route(method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn the_route_of_the_binary() {
        assert_eq!(binary_route("GET", "/machinist"), Some(ServerRoute::Binary));
        assert_eq!(binary_route("POST", "/machinist"), Some(ServerRoute::MethodNotAllowed));
        assert_eq!(binary_route("GET", "/machinist/"), None);
    }

    #[test]
    fn query_parameters_are_decoded() {
        for (query, expected) in [
            ("etcd_index=1", Some("1")),
            ("a=b&etcd_index=2&etcd_index=3", Some("2")),
            ("etcd%5Findex=%31", Some("1")),
            ("etcd_index", Some("")),
            ("x=etcd_index", None),
            ("", None),
        ] {
            assert_eq!(query_parameter(Some(query), "etcd_index").as_deref(), expected, "{query}");
        }
        assert_eq!(query_parameter(None, "a"), None);
    }
}
