//! Scopes: a registry, a namespace or repository in it, or all hosts below a domain (`*.domain`).

/// Whether all of `inner` is inside `outer`. A scope is inside itself.
#[must_use]
pub fn is_inside(inner: &str, outer: &str) -> bool {
    if inner == outer {
        return true;
    }
    if inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/')) {
        return true;
    }
    let Some(domain) = outer.strip_prefix('*').filter(|domain| domain.starts_with('.')) else {
        return false;
    };
    host(inner).is_some_and(|host| host.ends_with(domain))
}

/// All scopes for which [`is_inside`] holds, including `inner`. Thousands of scopes can then be
/// looked up instead of compared one by one.
#[must_use]
pub fn enclosing_scopes(inner: &str) -> Vec<String> {
    let mut scopes = vec![inner.to_owned()];
    scopes.extend(inner.match_indices('/').map(|(at, _)| inner[..at].to_owned()));
    let host = host(inner).unwrap_or_default();
    scopes.extend(host.match_indices('.').map(|(at, _)| format!("*{}", &host[at..])));
    scopes
}

/// The host that is compared with a wildcard. A colon in a path is not a port, so such a scope
/// matches no wildcard.
fn host(scope: &str) -> Option<&str> {
    match scope.split_once(':') {
        Some((before, _)) => (!before.contains('/')).then_some(before),
        None => scope.split('/').next(),
    }
}

/// Whether a scope is valid in the lists of the Image config: not empty, and an asterisk only as `*.`
/// before a host.
#[must_use]
pub fn is_listable(scope: &str) -> bool {
    if scope.is_empty() {
        return false;
    }
    if !scope.contains('*') {
        return true;
    }
    scope.strip_prefix("*.").is_some_and(|domain| !domain.contains(['/', '@', ':', '*']))
}

/// Whether a scope is valid as a source of mirrors: a host with optional port and path, or `*.` and a
/// domain.
#[must_use]
pub fn is_source(scope: &str) -> bool {
    match scope.strip_prefix("*.") {
        Some(domain) => domain.split('.').all(is_label),
        None => is_mirror(scope),
    }
}

/// Whether a scope is valid as a mirror: a host with optional port and path.
#[must_use]
pub fn is_mirror(scope: &str) -> bool {
    let mut parts = scope.split('/');
    let host = parts.next().unwrap_or_default();
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    name.split('.').all(is_label) && port.is_none_or(is_port) && parts.all(is_path_part)
}

/// A part of a host name.
fn is_label(label: &str) -> bool {
    let middle = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !label.is_empty()
        && label.bytes().all(middle)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// A path component: lower-case letters and digits, separated by one dot, one or two underscores, or
/// any number of hyphens.
fn is_path_part(part: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (Some(first), Some(last)) = (part.bytes().next(), part.bytes().last()) else {
        return false;
    };
    let mut between = part.split(|letter: char| letter.is_ascii_alphanumeric());
    part.bytes().all(|byte| is_word(byte) || b"._-".contains(&byte))
        && is_word(first)
        && is_word(last)
        && between
            .all(|run| matches!(run, "" | "." | "_" | "__") || run.bytes().all(|byte| byte == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn inside() {
        for (inner, outer, expected) in [
            ("a.io", "a.io", true),
            ("a.io/x", "a.io", true),
            ("a.io/x/y", "a.io/x", true),
            ("a.io/xy", "a.io/x", false),
            ("a.io:5000", "a.io", false),
            ("a.io", "a.io/x", false),
            ("b.a.io", "*.a.io", true),
            ("*.b.a.io", "*.a.io", true),
            ("c.b.a.io:5000/x", "*.a.io", true),
            ("b.a.io/x", "*.a.io", true),
            ("a.io", "*.a.io", false),
            ("quay/bar.foo", "*.foo", false),
            ("quay/bar.foo:400", "*.foo", false),
            ("x.foo/bar:tag", "*.foo", false),
        ] {
            assert_eq!(is_inside(inner, outer), expected, "{inner} in {outer}");
        }
    }

    #[test]
    fn sources_and_mirrors() {
        for good in ["a", "a.io", "A-b.io:5000", "a.io/x", "a.io/x_y/z--w.v__u", "localhost:1/a"] {
            assert!(is_mirror(good) && is_source(good), "{good}");
        }
        for bad in [
            "",
            "https://a.io",
            "a.io/",
            "a.io:",
            "a.io:x",
            "-a.io",
            "a..io",
            "a.io/X",
            "a.io/x..y",
            "a.io/_x",
            "a.io/x___y",
            "a.io/x-",
            "a.io/x:tag",
            "a.io/x@sha256:1",
            "a.*.io",
            "*",
            "a.io/x._y",
            "a.io//x",
        ] {
            assert!(!is_mirror(bad) && !is_source(bad), "{bad}");
        }
        assert!(is_source("*.a.io") && !is_mirror("*.a.io"));
        assert!(!is_source("*.a.io/x") && !is_source("*.a.io:5000"));
    }

    #[test]
    fn lists() {
        for good in ["a.io", "a.io/x:tag", "*.a.io", "https://x.io"] {
            assert!(is_listable(good), "{good}");
        }
        for bad in ["", "foo.*.com", "*", "*a.io", "*.a.io/x", "*.a.io:5000", "*.*.io"] {
            assert!(!is_listable(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn enclosing_scopes_agree_with_is_inside(
            inner in r"(\*\.)?[ab]{1,2}(\.[ab]{1,2}){0,2}(:5)?(/[ab]){0,2}(:t)?",
            outer in r"(\*\.)?[ab]{1,2}(\.[ab]{1,2}){0,2}(:5)?(/[ab]){0,2}",
        ) {
            prop_assert_eq!(is_inside(&inner, &outer), enclosing_scopes(&inner).contains(&outer));
            for scope in enclosing_scopes(&inner) {
                prop_assert!(is_inside(&inner, &scope), "{} in {}", inner, scope);
            }
        }
    }
}
