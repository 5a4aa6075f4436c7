//! Parses the path and query of a request with the semantics of Kubernetes.
//!
//! Pure: text in, [`RequestTarget`] and [`QueryOptions`] out. Does not know which kinds are served.
//! Called by the router.

mod options;

pub use options::{
    DeletionPropagation, FieldValidation, QueryError, QueryOptions, VersionMatch, parse_query,
};

/// What a path refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestTarget {
    /// `/`: the list of paths.
    Root,
    /// `/healthz`, `/readyz` or `/livez`.
    Health {
        /// Which of the three.
        check: String,
    },
    /// `/version`.
    Version,
    /// `/metrics`: the hub's own metrics.
    Metrics,
    /// `/api`: the versions of the core group.
    ApiVersions,
    /// `/apis`: the API groups.
    ApiGroups,
    /// `/apis/GROUP`.
    Group {
        /// The group.
        group: String,
    },
    /// `/api/v1` or `/apis/GROUP/VERSION`: the resources of a version.
    ResourceList {
        /// The group; empty for the core group.
        group: String,
        /// The version.
        version: String,
    },
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3`: the index of documents.
    OpenApiV3Index,
    /// `/openapi/v3/...`: the document of one group and version.
    OpenApiV3 {
        /// `api/v1` or `apis/GROUP/VERSION`.
        path: String,
    },
    /// `/machinist/v1/...`: the hub's own endpoints.
    Admin {
        /// The rest of the path.
        endpoint: String,
    },
    /// Objects.
    Resource(ResourcePath),
    /// A path that the hub does not serve.
    Unknown,
}

/// A path to objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourcePath {
    /// API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// Namespace, if the path has one.
    pub namespace: Option<String>,
    /// Resource: `machineconfigpools`.
    pub plural: String,
    /// Object name, if the path has one.
    pub name: Option<String>,
    /// Subresource, such as `status`.
    pub subresource: Option<String>,
}

/// The longest accepted path. Group, version, namespace, resource, name and subresource at their
/// limits fit.
const MAX_PATH_BYTES: usize = 4096;

/// Parses a path.
///
/// The path is split at its slashes before its segments are decoded, so an encoded slash never
/// becomes a separator. A path with a segment that is empty, `.`, `..` or contains a slash is
/// unknown.
#[must_use]
pub fn parse_path(path: &str) -> RequestTarget {
    let Some(segments) = segments(path) else { return RequestTarget::Unknown };
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => RequestTarget::Root,
        [check @ ("healthz" | "readyz" | "livez")]
        | [check @ ("healthz" | "readyz" | "livez"), "ping"] => {
            RequestTarget::Health { check: (*check).to_owned() }
        }
        ["version"] => RequestTarget::Version,
        ["metrics"] => RequestTarget::Metrics,
        ["api"] => RequestTarget::ApiVersions,
        ["apis"] => RequestTarget::ApiGroups,
        ["apis", group] => RequestTarget::Group { group: (*group).to_owned() },
        ["api", version] => resource_list_target("", version),
        ["apis", group, version] => resource_list_target(group, version),
        ["openapi", "v2"] => RequestTarget::OpenApiV2,
        ["openapi", "v3"] => RequestTarget::OpenApiV3Index,
        ["openapi", "v3", rest @ ..] => RequestTarget::OpenApiV3 { path: rest.join("/") },
        ["machinist", "v1", rest @ ..] => RequestTarget::Admin { endpoint: rest.join("/") },
        ["api", version, rest @ ..] => resource_target("", version, rest),
        ["apis", group, version, rest @ ..] => resource_target(group, version, rest),
        _ => RequestTarget::Unknown,
    }
}

fn resource_list_target(group: &str, version: &str) -> RequestTarget {
    RequestTarget::ResourceList { group: group.to_owned(), version: version.to_owned() }
}

fn resource_target(group: &str, version: &str, rest: &[&str]) -> RequestTarget {
    let own = |text: &&str| (*text).to_owned();
    let base = ResourcePath {
        group: group.to_owned(),
        version: version.to_owned(),
        ..ResourcePath::default()
    };
    let path = match rest {
        // A namespace is itself an object. What follows its name is a resource in it, unless it is
        // one of the two subresources of namespaces.
        ["namespaces", name, sub @ ("status" | "finalize")] if group.is_empty() => ResourcePath {
            plural: "namespaces".to_owned(),
            name: Some(own(name)),
            subresource: Some(own(sub)),
            ..base
        },
        ["namespaces", namespace, plural, rest @ ..] if rest.len() <= 2 => ResourcePath {
            namespace: Some(own(namespace)),
            plural: own(plural),
            name: rest.first().map(own),
            subresource: rest.get(1).map(own),
            ..base
        },
        [plural, rest @ ..] if rest.len() <= 2 => ResourcePath {
            plural: own(plural),
            name: rest.first().map(own),
            subresource: rest.get(1).map(own),
            ..base
        },
        _ => return RequestTarget::Unknown,
    };
    RequestTarget::Resource(path)
}

/// Decodes the segments of a path; `None` if one of them is not a valid name.
fn segments(path: &str) -> Option<Vec<String>> {
    if path.len() > MAX_PATH_BYTES {
        return None;
    }
    let path = path.strip_prefix('/')?;
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Some(Vec::new());
    }
    path.split('/').map(decode_segment).collect()
}

fn decode_segment(segment: &str) -> Option<String> {
    let text = percent_decode(segment, false)?;
    let honest = !text.is_empty()
        && text != "."
        && text != ".."
        && !text.chars().any(|c| c == '/' || c == '\\' || c.is_control());
    honest.then_some(text)
}

/// Decodes `%41`, and `+` as a space if wanted; `None` if the text is malformed or not UTF-8.
#[must_use]
pub fn percent_decode(text: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'%' => {
                let (digits, tail) = rest.split_at_checked(2)?;
                let digits = std::str::from_utf8(digits).ok()?;
                if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return None;
                }
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = tail;
            }
            b'+' if plus_is_space => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource_target_at(
        group: &str,
        namespace: &str,
        plural: &str,
        name: &str,
        sub: &str,
    ) -> RequestTarget {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        RequestTarget::Resource(ResourcePath {
            group: group.to_owned(),
            version: "v1".to_owned(),
            namespace: some(namespace),
            plural: plural.to_owned(),
            name: some(name),
            subresource: some(sub),
        })
    }

    #[test]
    fn paths() {
        let table = [
            ("/", RequestTarget::Root),
            ("/api", RequestTarget::ApiVersions),
            ("/metrics", RequestTarget::Metrics),
            ("/apis/", RequestTarget::ApiGroups),
            ("/readyz", RequestTarget::Health { check: "readyz".into() }),
            ("/api/v1", resource_list_target("", "v1")),
            ("/apis/g.io/v1", resource_list_target("g.io", "v1")),
            ("/apis/g.io", RequestTarget::Group { group: "g.io".into() }),
            ("/openapi/v3/apis/g.io/v1", RequestTarget::OpenApiV3 { path: "apis/g.io/v1".into() }),
            ("/machinist/v1/backup", RequestTarget::Admin { endpoint: "backup".into() }),
            ("/api/v1/nodes", resource_target_at("", "", "nodes", "", "")),
            ("/api/v1/nodes/a/status", resource_target_at("", "", "nodes", "a", "status")),
            ("/api/v1/namespaces", resource_target_at("", "", "namespaces", "", "")),
            ("/api/v1/namespaces/a", resource_target_at("", "", "namespaces", "a", "")),
            (
                "/api/v1/namespaces/a/finalize",
                resource_target_at("", "", "namespaces", "a", "finalize"),
            ),
            ("/api/v1/namespaces/a/secrets", resource_target_at("", "a", "secrets", "", "")),
            ("/api/v1/namespaces/a/secrets/b", resource_target_at("", "a", "secrets", "b", "")),
            ("/apis/g.io/v1/things/a%20b", resource_target_at("g.io", "", "things", "a b", "")),
            (
                "/apis/g.io/v1/namespaces/n/things/a/status",
                resource_target_at("g.io", "n", "things", "a", "status"),
            ),
        ];
        for (path, expected) in table {
            assert_eq!(parse_path(path), expected, "{path}");
        }
    }

    #[test]
    fn malicious_paths_are_unknown() {
        for path in [
            "",
            "api/v1",
            "//api/v1/nodes",
            "/api//v1/nodes",
            "/api/v1/nodes/..",
            "/api/v1/nodes/%2e%2e",
            "/api/v1/nodes/../secrets",
            "/api/v1/nodes/a%2fb",
            "/api/v1/nodes/a%5cb",
            "/api/v1/nodes/a%00",
            "/api/v1/nodes/%zz",
            "/api/v1/nodes/%2",
            "/api/v1/nodes/%+1",
            "/api/v1/nodes/%ff",
            "/api/v1/nodes/a/b/c",
            "/api/v1/namespaces/a/b/c/d/e",
            "/elsewhere",
            &"/a".repeat(5000),
        ] {
            assert_eq!(parse_path(path), RequestTarget::Unknown, "{path}");
        }
    }
}
