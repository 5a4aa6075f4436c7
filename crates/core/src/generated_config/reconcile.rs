//! Whether a generated MachineConfig has to be written.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt as _};

use crate::api::MachineConfig;
use crate::api::names::object::RENDERED_PREFIX;
use crate::api::names::{annotation, label};

/// The MachineConfig with the controller's version and its owner.
#[must_use]
pub fn with_ownership(
    mut config: MachineConfig,
    version: &str,
    owner: Option<OwnerReference>,
) -> MachineConfig {
    let key = annotation::GENERATED_BY_CONTROLLER_VERSION;
    config.annotations_mut().insert(key.to_owned(), version.to_owned());
    config.metadata.owner_references = owner.map(|owner| vec![owner]);
    config
}

/// An owner reference without `controller`.
#[must_use]
pub fn owner_reference<K: Resource<DynamicType = ()>>(object: &K) -> Option<OwnerReference> {
    let mut owner = object.controller_owner_ref(&())?;
    owner.controller = None;
    owner.block_owner_deletion = None;
    Some(owner)
}

/// The object to write over the present one. `None` if it is up to date. Other metadata, such as
/// foreign annotations, is kept.
#[must_use]
pub fn replacement(found: &MachineConfig, wanted: &MachineConfig) -> Option<MachineConfig> {
    let holds =
        |key: &String, value: &String, all: &BTreeMap<String, String>| all.get(key) == Some(value);
    let is_there = found.spec == wanted.spec
        && wanted.annotations().iter().all(|(key, value)| holds(key, value, found.annotations()))
        && wanted.labels().iter().all(|(key, value)| holds(key, value, found.labels()))
        && found.metadata.owner_references == wanted.metadata.owner_references;
    if is_there {
        return None;
    }
    let mut written = found.clone();
    written.spec = wanted.spec.clone();
    for (key, value) in wanted.annotations() {
        written.annotations_mut().insert(key.clone(), value.clone());
    }
    for (key, value) in wanted.labels() {
        written.labels_mut().insert(key.clone(), value.clone());
    }
    written.metadata.owner_references = wanted.metadata.owner_references.clone();
    Some(written)
}

/// Whether a MachineConfig comes from a generator, not from an administrator or from rendering.
#[must_use]
pub fn is_generated(config: &MachineConfig) -> bool {
    let is_rendered = config.name_any().starts_with(RENDERED_PREFIX);
    let is_made = config.annotations().contains_key(annotation::GENERATED_BY_CONTROLLER_VERSION);
    is_made && !is_rendered && config.labels().contains_key(label::ROLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated_config::{GeneratedFile, machine_config};

    #[test]
    fn an_up_to_date_config_is_not_written() {
        let wanted = |text: &str| {
            with_ownership(
                machine_config("99-a", "worker", &[GeneratedFile::new("/a", text)]),
                "v1",
                None,
            )
        };
        let mut found = wanted("a");
        found.metadata.uid = Some("u".to_owned());
        found.annotations_mut().insert("mine".to_owned(), "kept".to_owned());
        assert_eq!(replacement(&found, &wanted("a")), None);
        let written = replacement(&found, &wanted("b")).unwrap();
        assert_eq!(written.spec, wanted("b").spec);
        assert_eq!(written.annotations()["mine"], "kept");
        assert_eq!(written.metadata.uid.as_deref(), Some("u"));
        let newer = with_ownership(wanted("a"), "v2", None);
        assert!(replacement(&found, &newer).is_some());
        assert!(is_generated(&found));
    }
}
