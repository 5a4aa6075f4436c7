//! Go's `path` package: slash-separated paths, handled as text.

/// The shortest equivalent path.
#[must_use]
pub fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&last) if last != ".." => {
                    parts.pop();
                }
                _ if rooted => {}
                _ => parts.push(".."),
            },
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (rooted, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

/// Whether [`clean`] would return the path unchanged, without an allocation.
#[must_use]
pub fn is_clean_absolute(path: &str) -> bool {
    path == "/"
        || path.strip_prefix('/').is_some_and(|rest| {
            rest.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
        })
}

/// Joins the non-empty parts and cleans the result.
#[must_use]
pub fn join(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { String::new() } else { clean(&parts.join("/")) }
}

/// The extension of the last element, with its dot.
#[must_use]
pub fn ext(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rfind('.').map_or("", |at| &name[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_as_go_cleans_them() {
        for (path, expected) in [
            ("", "."),
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a//b/", "/a/b"),
            ("/a/./b/../c", "/a/c"),
            ("/../a", "/a"),
            ("../a", "../a"),
            ("a/../..", ".."),
            ("a/..", "."),
        ] {
            assert_eq!(clean(path), expected, "{path:?}");
            let absolute = path.starts_with('/');
            assert_eq!(is_clean_absolute(path), absolute && clean(path) == path, "{path:?}");
        }
    }

    #[test]
    fn join_skips_empty_parts() {
        assert_eq!(join(&["/", "", "/a/"]), "/a");
        assert_eq!(join(&["", "b/../c"]), "c");
        assert_eq!(join(&["", ""]), "");
    }

    #[test]
    fn the_extension_is_that_of_the_last_element() {
        for (path, expected) in
            [("a.service", ".service"), ("a", ""), ("a.b/c", ""), ("x.", "."), (".conf", ".conf")]
        {
            assert_eq!(ext(path), expected, "{path:?}");
        }
    }
}
