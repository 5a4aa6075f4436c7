//! `hosts.toml` files of containerd from a `registries.conf`: mirrors, insecure and blocked registries, as far as
//! containerd knows them. It knows settings by registry only, not by repository, and no wildcards; what it cannot
//! express is reported and left out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::registries_conf::{RegistriesConf, RegistryEntry};
use super::toml_text::quoted;

/// A host that does not exist, in place of a registry that must not be contacted (RFC 2606).
const NOWHERE: &str = "https://blocked.invalid";
/// Where the images of docker.io are.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");
/// More registries than this are not a file of a person.
const MAX_REGISTRIES: usize = 500;

/// The files for containerd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerdHosts {
    /// The text of `hosts.toml` by registry, which is the name of its directory.
    pub files: BTreeMap<String, String>,
    /// What containerd cannot do, and what is left out for that.
    pub not_applied: Vec<String>,
}

/// A registry and what containerd tries for it.
#[derive(Debug, Default)]
struct RegistryHosts {
    /// Tried in this order, before the registry itself.
    hosts: Vec<HostEntry>,
    is_insecure: bool,
    is_blocked: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HostEntry {
    url: String,
    /// Whether the URL has a path that containerd must not change.
    has_path: bool,
    is_insecure: bool,
    /// Whether it resolves tags, too.
    resolves: bool,
}

/// The files for a `registries.conf`.
#[must_use]
pub fn containerd_hosts(conf: &RegistriesConf) -> ContainerdHosts {
    let mut found = ContainerdHosts::default();
    let mut registries: BTreeMap<String, RegistryHosts> = BTreeMap::new();
    for entry in conf.registries.iter().take(MAX_REGISTRIES) {
        if let Err(problem) = add(entry, &mut registries, &mut found.not_applied) {
            found.not_applied.push(problem);
        }
    }
    for (registry, hosts) in registries {
        let text = hosts_toml(&registry, &hosts);
        found.files.insert(registry, text);
    }
    found
}

fn add(
    entry: &RegistryEntry,
    registries: &mut BTreeMap<String, RegistryHosts>,
    not_applied: &mut Vec<String>,
) -> Result<(), String> {
    let scope = entry.scope();
    let cannot = |what: &str| {
        format!("containerd cannot {what} {scope}: it has settings for whole registries only")
    };
    let (registry, path) = split(scope).ok_or_else(|| cannot("use a wildcard or name such as"))?;
    if entry.blocked && entry.mirrors.is_empty() && !path.is_empty() {
        return Err(cannot("block"));
    }
    let mut hosts = Vec::new();
    for mirror in &entry.mirrors {
        let by_digest = entry.mirror_by_digest_only || mirror.pull_from_mirror == "digest-only";
        match mirror_url(&mirror.location, path) {
            Some((host, below)) => {
                hosts.extend(urls(host, below, mirror.insecure, !by_digest));
            }
            None => not_applied.push(format!(
                "containerd cannot use {} as a mirror of {scope}: its path has to end with {path}",
                mirror.location
            )),
        }
    }
    let moved = !entry.location.is_empty() && entry.location != scope && !entry.blocked;
    if moved {
        match mirror_url(&entry.location, path) {
            Some((host, below)) => hosts.extend(urls(host, below, entry.insecure, true)),
            None => not_applied.push(cannot("move to another place")),
        }
    }
    if entry.blocked && !path.is_empty() {
        not_applied.push(format!(
            "containerd may contact {registry} for {scope} if no mirror has an image: it blocks whole registries only"
        ));
    }
    let known = registries.entry(registry.to_owned()).or_default();
    for host in hosts {
        if !known.hosts.iter().any(|other| other.url == host.url) {
            known.hosts.push(host);
        }
    }
    known.is_insecure |= entry.insecure && !moved;
    known.is_blocked |= entry.blocked && path.is_empty();
    Ok(())
}

/// Registry and path of a scope; `None` for wildcards and for what is no name of a directory.
fn split(scope: &str) -> Option<(&str, &str)> {
    let (registry, path) = scope.split_once('/').unwrap_or((scope, ""));
    let is_plain =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | ':');
    let is_path = |letter: char| is_plain(letter) || matches!(letter, '/' | '_' | '@');
    let is_name = !registry.is_empty()
        && !registry.starts_with('.')
        && registry.chars().all(is_plain)
        && path.chars().all(is_path);
    is_name.then_some((registry, path))
}

/// The host of a mirror, and the path that is put before the names of images there. The mirror has to keep the path of
/// the images that it mirrors.
fn mirror_url<'a>(location: &'a str, path: &str) -> Option<(&'a str, &'a str)> {
    let (host, mirror_path) = split(location)?;
    let below = mirror_path.strip_suffix(path)?;
    let is_whole = path.is_empty() || below.is_empty() || below.ends_with('/');
    is_whole.then(|| (host, below.trim_end_matches('/')))
}

/// An insecure registry may speak HTTP, or HTTPS with any certificate.
fn urls(host: &str, below: &str, is_insecure: bool, resolves: bool) -> Vec<HostEntry> {
    let host = if host == DOCKER_HUB.0 { DOCKER_HUB.1 } else { host };
    let schemes: &[&str] = if is_insecure { &["https", "http"] } else { &["https"] };
    let has_path = !below.is_empty();
    let url = |scheme: &&str| match has_path {
        true => format!("{scheme}://{host}/v2/{below}"),
        false => format!("{scheme}://{host}"),
    };
    schemes
        .iter()
        .map(|scheme| HostEntry { url: url(scheme), has_path, is_insecure, resolves })
        .collect()
}

fn hosts_toml(registry: &str, hosts: &RegistryHosts) -> String {
    let own = urls(registry, "", hosts.is_insecure, true);
    let own = own.first().map_or(NOWHERE, |own| own.url.as_str());
    let server = if hosts.is_blocked { NOWHERE } else { own };
    let mut text = String::from(
        "# Written by Machinist from /etc/containers/registries.conf; changes are lost.\n",
    );
    // Writing to a String cannot fail.
    let _ = writeln!(text, "server = {}", quoted(server));
    if hosts.is_insecure && !hosts.is_blocked {
        text.push_str("skip_verify = true\n");
    }
    let plain = (hosts.is_insecure && !hosts.is_blocked).then(|| HostEntry {
        url: own.replacen("https", "http", 1),
        has_path: false,
        is_insecure: true,
        resolves: true,
    });
    for host in hosts.hosts.iter().chain(&plain) {
        let capabilities = if host.resolves { "[\"pull\", \"resolve\"]" } else { "[\"pull\"]" };
        let _ = write!(text, "\n[host.{}]\n  capabilities = {capabilities}\n", quoted(&host.url));
        if host.is_insecure {
            text.push_str("  skip_verify = true\n");
        }
        if host.has_path {
            text.push_str("  override_path = true\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(conf: &str) -> ContainerdHosts {
        containerd_hosts(&RegistriesConf::parse(conf).unwrap())
    }

    /// A file without its first line.
    fn file(found: &ContainerdHosts, registry: &str) -> String {
        found.files[registry].split_once('\n').unwrap().1.to_owned()
    }

    #[test]
    fn mirrors_are_tried_before_the_registry() {
        let found = hosts(
            "[[registry]]\nlocation = \"quay.io\"\n[[registry.mirror]]\nlocation = \"m.example:5000/proxy\"\n\
             [[registry.mirror]]\nlocation = \"n.example\"\ninsecure = true\npull-from-mirror = \"digest-only\"\n",
        );
        assert_eq!(
            file(&found, "quay.io"),
            "server = \"https://quay.io\"\n\
             \n[host.\"https://m.example:5000/v2/proxy\"]\n  capabilities = [\"pull\", \"resolve\"]\n  override_path = true\n\
             \n[host.\"https://n.example\"]\n  capabilities = [\"pull\"]\n  skip_verify = true\n\
             \n[host.\"http://n.example\"]\n  capabilities = [\"pull\"]\n  skip_verify = true\n"
        );
        assert!(found.not_applied.is_empty(), "{found:?}");
    }

    #[test]
    fn repositories_keep_their_path() {
        let entry = |location: &str, mirror: &str| {
            hosts(&format!(
                "[[registry]]\nlocation = \"{location}\"\n[[registry.mirror]]\nlocation = \"{mirror}\"\n"
            ))
        };
        let found = entry("quay.io/a/b", "m.example/a/b");
        assert!(file(&found, "quay.io").contains("[host.\"https://m.example\"]"), "{found:?}");
        let found = entry("quay.io/a", "m.example/proxy/a");
        assert!(
            file(&found, "quay.io").contains("[host.\"https://m.example/v2/proxy\"]"),
            "{found:?}"
        );
        for (location, mirror) in [("quay.io/a", "m.example/b"), ("quay.io/a", "m.example/ba")] {
            let found = entry(location, mirror);
            let expected = format!(
                "containerd cannot use {mirror} as a mirror of {location}: its path has to end with a"
            );
            assert_eq!(found.not_applied, [expected]);
        }
    }

    #[test]
    fn blocked_and_insecure_registries() {
        let found = hosts(
            "[[registry]]\nlocation = \"bad.example\"\nblocked = true\n\
             [[registry]]\nlocation = \"bad.example/only/this\"\nblocked = true\n\
             [[registry]]\nlocation = \"old.example:80\"\ninsecure = true\n\
             [[registry]]\nprefix = \"*.wild.example\"\nblocked = true\n\
             [[registry]]\nlocation = \"docker.io\"\n[[registry.mirror]]\nlocation = \"m.example\"\n",
        );
        assert_eq!(file(&found, "bad.example"), "server = \"https://blocked.invalid\"\n");
        assert_eq!(
            file(&found, "old.example:80"),
            "server = \"https://old.example:80\"\nskip_verify = true\n\
             \n[host.\"http://old.example:80\"]\n  capabilities = [\"pull\", \"resolve\"]\n  skip_verify = true\n"
        );
        assert!(
            file(&found, "docker.io").starts_with("server = \"https://registry-1.docker.io\"\n")
        );
        assert_eq!(found.not_applied.len(), 2, "{found:?}");
        assert!(found.not_applied[0].contains("cannot block bad.example/only/this"), "{found:?}");
        assert!(found.not_applied[1].contains("*.wild.example"), "{found:?}");
    }

    #[test]
    fn a_name_never_leaves_its_directory() {
        for location in ["..", "../x", ".", "a\\nb", "a b", "a\"b"] {
            let found =
                hosts(&format!("[[registry]]\nlocation = {}\ninsecure = true\n", quoted(location)));
            assert!(
                found.files.is_empty() && found.not_applied.len() == 1,
                "{location}: {found:?}"
            );
        }
    }
}
