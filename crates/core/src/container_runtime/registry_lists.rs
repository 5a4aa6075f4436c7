//! Which registries are blocked and allowed: the lists of the Image, without cutting the system off
//! from its own images.

use super::image_reference::{self, ImageReference};
use super::mirrors::MergedMirrors;
use super::registries_conf::{RegistriesConf, RegistryEdits, WildcardMirrorsError, edit};
use super::registry_lookup::{find_registry, pull_sources};
use super::scope::is_inside;
use crate::api::config::RegistrySources;
use crate::generated_config::GenerateError;

/// What the lists come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RegistryLists {
    /// Places that are never asked.
    pub(super) blocked: Vec<String>,
    /// Images that are refused.
    pub(super) refused: Vec<String>,
    /// The only images that are accepted, unless empty.
    pub(super) allowed: Vec<String>,
    /// Places that cannot be blocked, since the system's own images come from there.
    pub(super) required_by_release: Vec<String>,
}

/// Takes the release image apart.
pub(super) fn parse_release_image(image: &str) -> Result<ImageReference<'_>, GenerateError> {
    image_reference::parse(image).ok_or_else(|| GenerateError {
        object: "ClusterVersion version".to_owned(),
        field: "status.desired.image".to_owned(),
        message: format!("error parsing reference of release image {image:?}"),
        remedy: "it has to be a full name: host/path@sha256:…".to_owned(),
    })
}

/// What the lists of the Image come to. The repository of the release can only be blocked where a
/// mirror has its images; then the images are accepted by the name that they have there.
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

/// Whether the release can be had from a place that is not blocked.
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

/// Whether the lists can be carried out.
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

/// What to say when the release would be out of reach.
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
        object: "Image cluster".to_owned(),
        field: format!("spec.registrySources.{field}"),
        message,
        remedy: remedy.to_owned(),
    }
}
