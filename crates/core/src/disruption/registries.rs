//! Whether a change of the image registries may affect running pods. A pod whose image becomes
//! available in an additional place is safe; one whose image is found elsewhere or not at all is
//! not. The rules are those of MCO's daemon, including its gaps.

use std::collections::BTreeMap;

use crate::container_runtime::registries_conf::{RegistriesConf, RegistryEntry, RegistryMirror};
use crate::ignition::contents;
use crate::ignition::schema::Config;
use crate::reconcile_check::ConfigChange;

/// The path of the file.
pub const REGISTRIES_CONF: &str = "/etc/containers/registries.conf";

/// The value with which a mirror serves images by digest only.
const BY_DIGEST: &str = "digest-only";
/// The file is never larger.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Why a change of [`REGISTRIES_CONF`] requires a drain; `None` if it is safe. An unreadable file
/// is not safe, because its changes are unknown. A missing file counts as empty.
#[must_use]
pub fn drain_reason(change: &ConfigChange) -> Option<String> {
    let read = |config| read(config).map_err(|problem| format!("{REGISTRIES_CONF}: {problem}"));
    match (read(&change.old), read(&change.new)) {
        (Ok(old), Ok(new)) => {
            unsafe_difference(&old, &new).map(|problem| format!("{REGISTRIES_CONF}: {problem}"))
        }
        (Err(problem), _) | (_, Err(problem)) => Some(problem),
    }
}

/// The parsed file of a config; of several entries for it the last one wins.
fn read(config: &Config) -> Result<RegistriesConf, String> {
    let file = config.storage.files.iter().rev().find(|file| file.path == REGISTRIES_CONF);
    let bytes =
        file.map_or(Ok(Vec::new()), |file| contents::decode(&file.contents, MAX_FILE_BYTES));
    let bytes = bytes.map_err(|error| error.to_string())?;
    RegistriesConf::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| error.to_string())
}

fn unsafe_difference(old: &RegistriesConf, new: &RegistriesConf) -> Option<String> {
    // They are tried in order, so only appending is safe.
    let search = |conf: &RegistriesConf| conf.search.clone().unwrap_or_default();
    if !search(new).starts_with(&search(old)) {
        return Some(
            "unqualified-search-registries: an entry was removed, or the order changed".into(),
        );
    }
    let (old, new) = (by_scope(old), by_scope(new));
    if let Some(gone) = old.keys().find(|scope| !new.contains_key(*scope)) {
        return Some(format!("registry {gone} has been removed"));
    }
    new.iter().find_map(|(scope, registry)| {
        let problem = match old.get(scope) {
            Some(before) if before == registry => None,
            Some(before) => changed(before, registry),
            None if is_by_digest(registry) => None,
            None => Some("has been added, and is used for more than digests".to_owned()),
        };
        problem.map(|problem| format!("registry {scope} {problem}"))
    })
}

/// Registries by their scope; the last one of a scope wins.
fn by_scope<'a>(conf: &'a RegistriesConf) -> BTreeMap<&'a str, &'a RegistryEntry> {
    let scope = |registry: &'a RegistryEntry| {
        if registry.prefix.is_empty() { &registry.location } else { &registry.prefix }
    };
    conf.registries.iter().map(|registry| (scope(registry).as_str(), registry)).collect()
}

/// Why a changed registry is unsafe.
fn changed(old: &RegistryEntry, new: &RegistryEntry) -> Option<String> {
    for (field, differs) in [
        ("prefix", old.prefix != new.prefix),
        ("location", old.location != new.location),
        ("blocked", old.blocked != new.blocked),
        ("insecure", old.insecure != new.insecure),
    ] {
        if differs {
            return Some(format!("has a different {field}"));
        }
    }
    let gone = old.mirrors.iter().find(|mirror| find_mirror(&mirror.location, new).is_none());
    if let Some(gone) = gone {
        return Some(format!("has lost its mirror {}", gone.location));
    }
    new.mirrors.iter().find_map(|mirror| {
        let RegistryMirror { location, pull_from_mirror: pull, .. } = mirror;
        match find_mirror(location, old) {
            Some(before) if before.pull_from_mirror != *pull && pull != BY_DIGEST => {
                Some(format!("has a mirror {location} with a different pull-from-mirror"))
            }
            None if pull != BY_DIGEST && !new.mirror_by_digest_only => {
                Some(format!("has a new mirror {location} that is used for more than digests"))
            }
            _ => None,
        }
    })
}

fn find_mirror<'a>(location: &str, registry: &'a RegistryEntry) -> Option<&'a RegistryMirror> {
    registry.mirrors.iter().find(|mirror| mirror.location == location)
}

/// Whether a registry is used by digest only.
fn is_by_digest(registry: &RegistryEntry) -> bool {
    if registry.mirrors.is_empty() {
        return registry.mirror_by_digest_only;
    }
    registry.mirrors.iter().all(|mirror| mirror.pull_from_mirror == BY_DIGEST)
}

#[cfg(test)]
mod tests;
