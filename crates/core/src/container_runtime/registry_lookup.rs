//! Where the container runtime pulls an image from, by the rules of containers-registries.conf(5).

use super::mirrors::PullBy;
use super::registries_conf::{RegistriesConf, RegistryEntry};

/// The entry for an image or a scope: the one with the longest matching prefix.
pub(super) fn find_registry<'a>(conf: &'a RegistriesConf, name: &str) -> Option<&'a RegistryEntry> {
    let mut best: Option<(usize, &RegistryEntry)> = None;
    for registry in &conf.registries {
        let matched = matched_length(name, registry.scope());
        if let Some(length) = matched.filter(|length| best.is_none_or(|(best, _)| *length > best)) {
            best = Some((length, registry));
        }
    }
    best.map(|(_, registry)| registry)
}

/// The repositories that are tried, in order. A wildcard has no location and is skipped.
pub(super) fn pull_sources(registry: &RegistryEntry, repository: &str, by: PullBy) -> Vec<String> {
    let Some(length) = matched_length(repository, registry.scope()) else { return Vec::new() };
    let rest = &repository[length..];
    let serves = |word: &str| match word {
        "digest-only" => by == PullBy::Digest,
        "tag-only" => by == PullBy::Tag,
        _ => true,
    };
    let mirrors = registry.mirrors.iter().filter(|mirror| {
        (!registry.mirror_by_digest_only || by == PullBy::Digest)
            && serves(&mirror.pull_from_mirror)
    });
    let locations = mirrors.map(|mirror| &mirror.location).chain([&registry.location]);
    let locations = locations.filter(|location| !location.is_empty());
    locations.map(|location| format!("{location}{rest}")).collect()
}

/// The length of the match of a prefix.
fn matched_length(name: &str, prefix: &str) -> Option<usize> {
    let ends = |at: usize| {
        let next = name.as_bytes().get(at);
        next.is_none_or(|byte| b":/@".contains(byte)).then_some(at)
    };
    if let Some(domain) = prefix.strip_prefix('*').filter(|domain| domain.starts_with('.')) {
        let at = name.find(domain)?;
        if name[..at].contains('/') {
            return None;
        }
        return ends(at + domain.len());
    }
    name.starts_with(prefix).then(|| ends(prefix.len())).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        for (name, prefix, expected) in [
            ("a.io/x", "a.io", Some(4)),
            ("a.io", "a.io", Some(4)),
            ("a.iox", "a.io", None),
            ("a.io:5000/x", "a.io", Some(4)),
            ("b.a.io/x", "*.a.io", Some(6)),
            ("b.a.io:5000/x", "*.a.io", Some(6)),
            ("b/c.a.io", "*.a.io", None),
            ("b.a.ioo/x", "*.a.io", None),
            ("a.io", "a.io/x", None),
        ] {
            assert_eq!(matched_length(name, prefix), expected, "{name} {prefix}");
        }
    }

    #[test]
    fn the_longest_prefix_counts_and_mirrors_come_first() {
        let conf = RegistriesConf::parse(
            "[[registry]]\nlocation = \"a.io\"\n[[registry]]\nprefix = \"a.io/x\"\nlocation = \"b.io\"\n\
             [[registry.mirror]]\nlocation = \"m.io/y\"\npull-from-mirror = \"tag-only\"\n",
        )
        .unwrap();
        let found = find_registry(&conf, "a.io/x/z").unwrap();
        assert_eq!(found.location, "b.io");
        assert_eq!(pull_sources(found, "a.io/x/z", PullBy::Tag), ["m.io/y/z", "b.io/z"]);
        assert_eq!(pull_sources(found, "a.io/x/z", PullBy::Digest), ["b.io/z"]);
        assert!(find_registry(&conf, "c.io").is_none());
    }
}
