//! Which page a request is for.

use super::birth::PAGE;

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Whether the server is well.
    Health,
    /// The config of a pool.
    Config {
        /// The pool's name. It comes from outside, and may be anything.
        pool: String,
    },
    /// The half of a pool's config for machines that are known.
    Sealed {
        /// The pool's name, which may be anything.
        pool: String,
    },
    /// Where machines become known.
    Enrol {
        /// The pool's name, which may be anything.
        pool: String,
    },
    /// The program that machines complete their first boot with.
    Program,
    /// The page is at another path.
    Moved(String),
    /// There is no such page.
    NotFound,
    /// Pages are only read.
    MethodNotAllowed,
    /// The path is no path.
    BadPath,
}

/// Finds the page of a request.
#[must_use]
pub fn route(method: &str, path: &str, query: Option<&str>) -> Route {
    let clean = clean(path);
    if clean != path || path == "/config" {
        let place = if clean == "/config" { "/config/" } else { &clean };
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        return Route::Moved(format!("{place}{query}"));
    }
    if method != "GET" && method != "HEAD" {
        return Route::MethodNotAllowed;
    }
    if path == "/healthz" {
        return Route::Health;
    }
    if !path.starts_with("/config/") {
        return Route::NotFound;
    }
    match decode(path) {
        Some(path) => Route::Config { pool: base(&path).to_owned() },
        None => Route::BadPath,
    }
}

/// The pages that are there only where configs are split: `/sealed/POOL` and `/enrol/POOL`.
#[must_use]
pub fn sealed_route(method: &str, path: &str) -> Option<Route> {
    let (page, pool) = path.strip_prefix('/')?.split_once('/')?;
    let is_one = !pool.is_empty() && !pool.contains('/');
    let pool = || decode(pool).filter(|_| is_one);
    match (page, method) {
        ("sealed", "GET" | "HEAD") => {
            Some(pool().map_or(Route::NotFound, |pool| Route::Sealed { pool }))
        }
        ("enrol", "POST") => Some(pool().map_or(Route::NotFound, |pool| Route::Enrol { pool })),
        ("sealed" | "enrol", _) => Some(Route::MethodNotAllowed),
        _ => None,
    }
}

/// The page that is there only where the server hands out the program.
#[must_use]
pub fn program_route(method: &str, path: &str) -> Option<Route> {
    match (path == PAGE, method) {
        (true, "GET" | "HEAD") => Some(Route::Program),
        (true, _) => Some(Route::MethodNotAllowed),
        (false, _) => None,
    }
}

/// The path without empty, `.` and `..` segments; a slash at its end stays.
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

/// What comes after the last slash that something comes after.
fn base(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// A text with its percent escapes undone; none if it is not one.
#[must_use]
pub fn decode(text: &str) -> Option<String> {
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

/// The first value that a query has for a name.
#[must_use]
pub fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = query.unwrap_or_default().split('&');
    let mut values = pairs.filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key)? == name).then(|| decode(&value.replace('+', " ")))?
    });
    values.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pool: &str) -> Route {
        Route::Config { pool: pool.to_owned() }
    }

    fn moved(path: &str) -> Route {
        Route::Moved(path.to_owned())
    }

    #[test]
    fn pages() {
        for (method, path, expected) in [
            ("GET", "/config/worker", config("worker")),
            ("HEAD", "/config/worker", config("worker")),
            ("GET", "/config/worker/", config("worker")),
            ("GET", "/config/a/b", config("b")),
            ("GET", "/config/", config("config")),
            ("GET", "/config/w%20x", config("w x")),
            ("GET", "/config/%2e%2e", config("..")),
            ("GET", "/config/a%2Fb", config("b")),
            ("GET", "/config/%zz", Route::BadPath),
            ("GET", "/config/%ff", Route::BadPath),
            ("GET", "/config/%", Route::BadPath),
            ("GET", "/healthz", Route::Health),
            ("HEAD", "/healthz", Route::Health),
            ("GET", "/healthz/", Route::NotFound),
            ("GET", "/", Route::NotFound),
            ("GET", "/metrics", Route::NotFound),
            ("GET", "/configs/x", Route::NotFound),
            ("POST", "/config/worker", Route::MethodNotAllowed),
            ("DELETE", "/healthz", Route::MethodNotAllowed),
            ("PUT", "/nothing", Route::MethodNotAllowed),
            ("OPTIONS", "/config/worker", Route::MethodNotAllowed),
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
    fn pages_of_a_split() {
        let pool = || "worker".to_owned();
        for (method, path, expected) in [
            ("GET", "/sealed/worker", Some(Route::Sealed { pool: pool() })),
            ("HEAD", "/sealed/worker", Some(Route::Sealed { pool: pool() })),
            ("POST", "/enrol/worker", Some(Route::Enrol { pool: pool() })),
            ("POST", "/sealed/worker", Some(Route::MethodNotAllowed)),
            ("GET", "/enrol/worker", Some(Route::MethodNotAllowed)),
            ("GET", "/sealed/", Some(Route::NotFound)),
            ("GET", "/sealed/a/b", Some(Route::NotFound)),
            ("GET", "/sealed/%zz", Some(Route::NotFound)),
            ("GET", "/sealed", None),
            ("GET", "/config/worker", None),
        ] {
            assert_eq!(sealed_route(method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn the_page_of_the_program() {
        assert_eq!(program_route("GET", "/machinist"), Some(Route::Program));
        assert_eq!(program_route("POST", "/machinist"), Some(Route::MethodNotAllowed));
        assert_eq!(program_route("GET", "/machinist/"), None);
    }

    #[test]
    fn parameters() {
        for (query, expected) in [
            ("etcd_index=1", Some("1")),
            ("a=b&etcd_index=2&etcd_index=3", Some("2")),
            ("etcd%5Findex=%31", Some("1")),
            ("etcd_index", Some("")),
            ("x=etcd_index", None),
            ("", None),
        ] {
            assert_eq!(parameter(Some(query), "etcd_index").as_deref(), expected, "{query}");
        }
        assert_eq!(parameter(None, "a"), None);
    }
}
