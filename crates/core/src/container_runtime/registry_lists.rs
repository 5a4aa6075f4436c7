//! Blocked and allowed registries from the Image config. The registry of the cluster's own release
//! image is never blocked.

use super::image_reference::{self, ImageReference};
use super::mirrors::MergedMirrors;
use super::registries_conf::{RegistriesConf, RegistryEdits, WildcardMirrorsError, edit};
use super::registry_lookup::{find_registry, pull_sources};
use super::scope::is_inside;
use crate::api::config::RegistrySources;
use crate::generated_config::{GenerateError, SourceRef};

/// The effective lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RegistryLists {
    /// Registries that are never contacted.
    pub(super) blocked: Vec<String>,
    /// Images that are rejected.
    pub(super) refused: Vec<String>,
    /// The only accepted images; if empty, all.
    pub(super) allowed: Vec<String>,
    /// Registries that cannot be blocked, because the release image comes from there.
    pub(super) required_by_release: Vec<String>,
}

/// Parses the release image.
pub(super) fn parse_release_image(image: &str) -> Result<ImageReference<'_>, GenerateError> {
    image_reference::parse(image).ok_or_else(|| GenerateError {
        object: SourceRef::new("ClusterVersion", "version"),
        field: "status.desired.image".to_owned(),
        message: format!("error parsing reference of release image {image:?}"),
        remedy: "it has to be a full name: host/path@sha256:…".to_owned(),
    })
}

/// The effective lists of the Image config. The repository of the release can be blocked only if a
/// mirror serves it; the images are then accepted under their name in the mirror.
pub(super) fn registry_lists(
    sources: &RegistrySources,
    release: Option<&ImageReference<'_>>,
    digest: &[MergedMirrors<'_>],
) -> Result<RegistryLists, WildcardMirrorsError> {
    let all_blocked = sources.blocked_registries.as_deref().unwrap_or_default();
    let mut lists = RegistryLists::default();
    for scope in all_blocked {
        let holds = |release: &&ImageReference<'_>| is_inside(release.repository, scope);
        let Some(release) = release.filter(holds) else {
            lists.blocked.push(scope.clone());
            lists.refused.push(scope.clone());
            continue;
        };
        if !has_mirror(release, sources, digest)? {
            lists.required_by_release.push(scope.clone());
            continue;
        }
        lists.blocked.push(scope.clone());
        if scope != release.repository {
            lists.refused.push(scope.clone());
        }
        lists.allowed.push(release.repository.to_owned());
    }
    lists.allowed.extend(sources.allowed_registries.iter().flatten().cloned());
    Ok(lists)
}

/// Whether the release can be pulled from a registry that is not blocked.
fn has_mirror(
    release: &ImageReference<'_>,
    sources: &RegistrySources,
    digest: &[MergedMirrors<'_>],
) -> Result<bool, WildcardMirrorsError> {
    let blocked = sources.blocked_registries.as_deref().unwrap_or_default();
    let insecure = sources.insecure_registries.as_deref().unwrap_or_default();
    let mut conf = RegistriesConf::default();
    edit(&mut conf, &RegistryEdits { digest, tag: &[], insecure, blocked })?;
    let Some(registry) = find_registry(&conf, release.repository) else { return Ok(false) };
    let places = pull_sources(registry, release.repository, release.by);
    Ok(places.iter().any(|place| !blocked.iter().any(|scope| is_inside(place, scope))))
}

/// Checks the lists.
pub(super) fn check(
    sources: &RegistrySources,
    lists: &RegistryLists,
    release: Option<&ImageReference<'_>>,
) -> Result<(), GenerateError> {
    for (name, word, list) in [
        ("insecureRegistries", "insecure", &sources.insecure_registries),
        ("blockedRegistries", "blocked", &sources.blocked_registries),
        ("allowedRegistries", "allowed", &sources.allowed_registries),
    ] {
        let mut entries = list.iter().flatten().enumerate();
        if let Some((at, scope)) = entries.find(|(_, scope)| !super::scope::is_listable(scope)) {
            return Err(error(
                &format!("{name}[{at}]"),
                format!("invalid entry for {word} registries {scope:?}"),
                "write host[:port][/path], or *.domain for all hosts below it",
            ));
        }
    }
    let only_release = |allowed: &[String]| {
        release.is_some_and(|release| allowed == [release.repository.to_owned()])
    };
    if !lists.refused.is_empty() && !lists.allowed.is_empty() && !only_release(&lists.allowed) {
        return Err(error(
            "allowedRegistries",
            "invalid images config: only one of AllowedRegistries or BlockedRegistries may be specified"
                .to_owned(),
            "remove one of the two lists",
        ));
    }
    Ok(())
}

/// The error when the release would be unreachable.
pub(super) fn release_blocked_error(scopes: &[String], release: &str) -> GenerateError {
    error(
        "blockedRegistries",
        format!(
            "error adding {scopes:?} to blocked registries, cannot block the repository being used by the payload"
        ),
        &format!("remove it, or give {release} a mirror that is not blocked"),
    )
}

fn error(field: &str, message: String, remedy: &str) -> GenerateError {
    GenerateError {
        object: SourceRef::new("Image", "cluster"),
        field: format!("spec.registrySources.{field}"),
        message,
        remedy: remedy.to_owned(),
    }
}
