//! `registries.d`: where signatures are (containers-registries.d(5)). Sigstore signatures are
//! attached to images; reading them has to be enabled for each scope. The file is written byte for
//! byte like MCO.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::mirrors::PullBy;
use super::registries_conf::{RegistriesConf, RegistryEntry};
use super::registry_lookup::{find_registry, pull_sources};
use super::scope::is_inside;
use crate::go::yaml::to_go_yaml;

/// Replaces the host of a wildcard.
const PLACEHOLDER_HOST: &str = "matched";
/// Replaces the repository of a host.
const PLACEHOLDER_REPOSITORY: &str = "/a";

/// The file for these scopes and for all mirrors that serve their images.
pub(super) fn registries_d<'a>(
    scopes: impl IntoIterator<Item = &'a String>,
    conf: Option<&RegistriesConf>,
) -> Option<String> {
    let mut places = BTreeSet::new();
    for scope in scopes {
        places.insert(scope.clone());
        let Some(conf) = conf else { continue };
        if let Some(registry) = find_registry(conf, scope) {
            places.extend(pull_locations(scope, registry));
        }
        let inside = conf.registries.iter().map(RegistryEntry::scope);
        for inner in inside.filter(|inner| *inner != scope && is_inside(inner, scope)) {
            if let Some(registry) = find_registry(conf, inner) {
                places.extend(pull_locations(inner, registry));
            }
        }
    }
    let attached = json!({"use-sigstore-attachments": true});
    let docker: Map<String, Value> =
        places.into_iter().map(|place| (place, attached.clone())).collect();
    (!docker.is_empty()).then(|| to_go_yaml(&json!({"docker": docker})))
}

/// Where images of a scope are pulled from.
fn pull_locations(scope: &str, registry: &RegistryEntry) -> Vec<String> {
    let mut repository = match scope.strip_prefix('*') {
        Some(domain) if domain.starts_with('.') => format!("{PLACEHOLDER_HOST}{domain}"),
        _ => scope.to_owned(),
    };
    let is_host = !repository.contains('/');
    if is_host {
        repository.push_str(PLACEHOLDER_REPOSITORY);
    } else {
        trim_to_repository(&mut repository);
    }
    let mut places = pull_sources(registry, &repository, PullBy::Digest);
    places.extend(pull_sources(registry, &repository, PullBy::Tag));
    if is_host {
        for place in &mut places {
            if let Some(host) = place.strip_suffix(PLACEHOLDER_REPOSITORY) {
                *place = host.to_owned();
            }
        }
    }
    places
}

/// Removes tag and digest.
fn trim_to_repository(name: &mut String) {
    if let Some(at) = name.find('@') {
        name.truncate(at);
    }
    let path = name.find('/').unwrap_or_default();
    if let Some(colon) = name[path..].find(':') {
        name.truncate(path + colon);
    }
}
