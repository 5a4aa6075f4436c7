//! What the generators would make of the objects in a plan: mirrors, image policies, settings of kubelets and container
//! runtimes. Called by `machinist plan`; the rules are those of the controller. An object that nothing is generated from
//! here stays among those whose effect the plan does not show.

use std::collections::BTreeMap;

use anyhow::Result;
use kube::ResourceExt as _;
use machinist_core::api::names::annotation::machinist::PROFILE;
use machinist_core::api::{ControllerConfig, MachineConfig, MachineConfigPool};
use machinist_core::generate::{GenerateOutput, generate};
use machinist_core::profile::TemplateProfile;
use machinist_core::template::{TemplateTree, builtin_templates};
use machinist_hub::patch::{PatchKind, apply};

use super::cluster::session::ClusterSession;
use super::generate_inputs::GenerateInputs;
use crate::kubernetes::apply::{last_applied, patch};
use crate::manifests::ManifestDocument;

/// Kinds that MachineConfigs are generated from without templates.
const IMAGE_KINDS: [&str; 7] = [
    "ImageDigestMirrorSet",
    "ImageTagMirrorSet",
    "ImageContentSourcePolicy",
    "Image",
    "ClusterImagePolicy",
    "ImagePolicy",
    "ContainerRuntimeConfig",
];
/// Kinds that need the templates of the cluster.
const KUBELET_KINDS: [&str; 2] = ["KubeletConfig", "FeatureGate"];

/// What is generated otherwise after a change.
#[derive(Debug, Default)]
pub(super) struct GeneratedChanges {
    /// New and changed MachineConfigs.
    pub(super) machine_configs: Vec<MachineConfig>,
    /// MachineConfigs that are no longer generated, by name.
    pub(super) deleted: Vec<String>,
    /// Why objects generate nothing, and warnings about them.
    pub(super) problems: Vec<String>,
    /// Whether a problem is an error.
    pub(super) is_refused: bool,
    /// The names of the objects whose effect this is, as `Kind/name`.
    pub(super) covered: Vec<String>,
}

impl GeneratedChanges {
    /// Compares what is generated from the objects of the API server with what would be generated with those of the
    /// manifests.
    pub(super) async fn plan(
        session: &ClusterSession,
        pools: &[MachineConfigPool],
        controller_config: Option<&ControllerConfig>,
        documents: &[ManifestDocument],
    ) -> Result<Self> {
        let templates = templates_of(controller_config);
        let is_covered = |document: &&ManifestDocument| {
            IMAGE_KINDS.contains(&document.kind())
                || templates.is_some() && KUBELET_KINDS.contains(&document.kind())
        };
        let given: Vec<&ManifestDocument> = documents.iter().filter(is_covered).collect();
        if given.is_empty() {
            return Ok(Self::default());
        }
        let templates = templates.unwrap_or_default();
        let before = session.documents().await?;
        let after = overlay(&before, &given)?;
        let made = |documents: &[ManifestDocument]| -> Result<GenerateOutput> {
            let inputs = GenerateInputs::find_with(documents, pools.to_vec())?;
            Ok(generate(&inputs.sources(&templates)))
        };
        let mut changes = Self::between(&made(&before)?, &made(&after)?);
        changes.covered = given.iter().map(|document| document.object_name()).collect();
        Ok(changes)
    }

    fn between(before: &GenerateOutput, after: &GenerateOutput) -> Self {
        let by_name = |made: &GenerateOutput| -> BTreeMap<String, MachineConfig> {
            let configs = made.generated.iter().map(|made| made.machine_config.clone());
            configs.map(|config| (config.name_any(), config)).collect()
        };
        let (old, new) = (by_name(before), by_name(after));
        let warnings = |made: &GenerateOutput| -> Vec<String> {
            made.generated.iter().flat_map(|made| made.warnings.clone()).collect()
        };
        let known = warnings(before);
        let mut problems: Vec<String> =
            warnings(after).into_iter().filter(|warning| !known.contains(warning)).collect();
        let errors: Vec<String> = after
            .errors
            .iter()
            .filter(|error| !before.errors.contains(error))
            .map(ToString::to_string)
            .collect();
        let is_refused = !errors.is_empty();
        problems.extend(errors);
        problems.sort();
        problems.dedup();
        let deleted = old.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
        let is_new = |name: &str, config: &MachineConfig| {
            old.get(name).is_none_or(|old| old.spec != config.spec)
        };
        let changed = new.iter().filter(|(name, config)| is_new(name, config));
        let machine_configs = changed.map(|(_, config)| config.clone()).collect();
        Self { machine_configs, deleted, problems, is_refused, covered: Vec::new() }
    }
}

/// The templates of the cluster, as far as they are built-in ones; the ControllerConfig names the profile.
fn templates_of(controller_config: Option<&ControllerConfig>) -> Option<TemplateTree> {
    let profile = controller_config?.annotations().get(PROFILE)?;
    TemplateProfile::from_name(profile).map(builtin_templates)
}

/// The objects after those of the manifests are applied.
fn overlay(
    before: &[ManifestDocument],
    given: &[&ManifestDocument],
) -> Result<Vec<ManifestDocument>> {
    let mut after = before.to_vec();
    for document in given {
        let is_same = |other: &&mut ManifestDocument| {
            let namespace = |document: &ManifestDocument| {
                document.value.pointer("/metadata/namespace").cloned()
            };
            other.kind() == document.kind()
                && other.name() == document.name()
                && namespace(other) == namespace(document)
        };
        match after.iter_mut().find(is_same) {
            Some(live) => {
                let change =
                    patch(last_applied(&live.value).as_ref(), &live.value, &document.value);
                live.value = apply(PatchKind::Merge, &live.value, &change, None)?;
            }
            None => after.push((*document).clone()),
        }
    }
    Ok(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests::ManifestOrigin;
    use serde_json::{Value, json};
    use std::slice::from_ref;

    fn document(value: Value) -> ManifestDocument {
        let origin = ManifestOrigin { file: "a.yaml".into(), document: 1, item: None };
        ManifestDocument { origin, value }
    }

    fn mirrors(name: &str, mirror: &str) -> ManifestDocument {
        document(json!({
            "apiVersion": "config.openshift.io/v1", "kind": "ImageDigestMirrorSet",
            "metadata": {"name": name},
            "spec": {"imageDigestMirrors": [{"source": "quay.io/a", "mirrors": [mirror]}]},
        }))
    }

    fn made(documents: &[ManifestDocument]) -> GenerateOutput {
        let inputs = GenerateInputs::find(documents).unwrap();
        generate(&inputs.sources(&TemplateTree::new()))
    }

    #[test]
    fn a_mirror_object_changes_every_pool() {
        let names = |changes: &GeneratedChanges| -> Vec<String> {
            changes.machine_configs.iter().map(kube::ResourceExt::name_any).collect()
        };
        let (one, other) = (mirrors("m", "m.example/a"), mirrors("m", "n.example/a"));
        let nothing = made(&[]);
        let first = GeneratedChanges::between(&nothing, &made(from_ref(&one)));
        assert_eq!(
            names(&first),
            ["99-master-generated-registries", "99-worker-generated-registries"]
        );
        assert!(first.problems.is_empty() && !first.is_refused, "{first:?}");
        let after = overlay(from_ref(&one), &[&other]).unwrap();
        assert_eq!(after.len(), 1, "it is the same object");
        let second = GeneratedChanges::between(&made(from_ref(&one)), &made(&after));
        assert_eq!(names(&second).len(), 2);
        let same = GeneratedChanges::between(&made(from_ref(&one)), &made(from_ref(&one)));
        assert!(same.machine_configs.is_empty() && same.deleted.is_empty());
        let gone = GeneratedChanges::between(&made(from_ref(&one)), &nothing);
        assert_eq!(gone.deleted.len(), 2);
        let bad = GeneratedChanges::between(&nothing, &made(&[mirrors("m", "http://x")]));
        assert!(bad.is_refused || names(&bad).len() == 2, "{bad:?}");
    }
}
