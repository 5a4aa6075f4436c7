//! The inputs of generators, found in manifests.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::{Resource, ResourceExt};
use machinist_core::api::config::{
    APIServer, ClusterImagePolicy, ClusterVersion, FeatureGate, FeatureGates, Image,
    ImageDigestMirrorSet, ImagePolicy, ImageTagMirrorSet, NodeConfig,
};
use machinist_core::api::names::object::{
    CLUSTER, CLUSTER_VERSION, CONTROLLER_CONFIG, POOL_MASTER, POOL_WORKER, RENDERED_PREFIX,
};
use machinist_core::api::{
    ContainerRuntimeConfig, ControllerConfig, ImageContentSourcePolicy, KubeletConfig,
    MachineConfig, MachineConfigPool, MachineOSConfig, OSImageStream,
};
use machinist_core::bootstrap::{self, built_in_pool};
use machinist_core::container_runtime::registries;
use machinist_core::generate::GenerateSources;
use machinist_core::kubelet::{self, gates};
use machinist_core::template::{TemplateInputs, TemplateTree};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::output;
use crate::manifests::{self, ManifestDocument, ManifestText};

/// The objects that generators read.
#[derive(Debug, Default)]
pub(super) struct GenerateInputs {
    pub(super) pools: Vec<MachineConfigPool>,
    pub(super) machine_configs: Vec<MachineConfig>,
    image: Option<Image>,
    content_source_policies: Vec<ImageContentSourcePolicy>,
    digest_mirror_sets: Vec<ImageDigestMirrorSet>,
    tag_mirror_sets: Vec<ImageTagMirrorSet>,
    cluster_image_policies: Vec<ClusterImagePolicy>,
    image_policies: Vec<ImagePolicy>,
    container_runtime_configs: Vec<ContainerRuntimeConfig>,
    release_image: Option<String>,
    controller_config: Option<ControllerConfig>,
    pub(super) pull_secret: Option<Vec<u8>>,
    api_server: Option<APIServer>,
    pub(super) node: Option<NodeConfig>,
    pub(super) feature_gate: Option<FeatureGate>,
    gates: BTreeMap<String, bool>,
    kubelet_configs: Vec<KubeletConfig>,
    machine_os_configs: Vec<MachineOSConfig>,
    /// The OS images that pools can select.
    pub(super) streams: Option<OSImageStream>,
}

impl GenerateInputs {
    /// Finds the inputs in documents. The pools master and worker exist even if no manifest contains them.
    pub(super) fn find(documents: &[ManifestDocument]) -> Result<Self> {
        let mut pools: Vec<MachineConfigPool> = objects_of_kind(documents)?;
        for name in [POOL_MASTER, POOL_WORKER] {
            if !pools.iter().any(|pool| pool.name_any() == name) {
                pools.push(built_in_pool(name));
            }
        }
        Self::find_with(documents, pools)
    }

    /// The ControllerConfig, which has the values for templates, if it is in the documents.
    pub(super) fn controller_config_of(
        documents: &[ManifestDocument],
    ) -> Result<Option<ControllerConfig>> {
        let all: Vec<ControllerConfig> = objects_of_kind(documents)?;
        Ok(all.into_iter().find(|found| found.name_any() == CONTROLLER_CONFIG))
    }

    /// Finds the inputs in documents, for these pools.
    pub(super) fn find_with(
        documents: &[ManifestDocument],
        pools: Vec<MachineConfigPool>,
    ) -> Result<Self> {
        let images: Vec<Image> = objects_of_kind(documents)?;
        for image in images.iter().filter(|image| image.name_any() != CLUSTER) {
            let name = image.name_any();
            output::print_warning(&format!(
                "Image {name}: ignored: only the Image {CLUSTER} applies"
            ));
        }
        let image = images.into_iter().find(|image| image.name_any() == CLUSTER);
        let versions: Vec<ClusterVersion> = objects_of_kind(documents)?;
        let version = versions.into_iter().find(|version| version.name_any() == CLUSTER_VERSION);
        let running = version.and_then(|version| version.status?.desired);
        let controller_config = Self::controller_config_of(documents)?;
        let installed =
            controller_config.as_ref().and_then(|found| found.spec.release_image.clone());
        let feature_gate: Option<FeatureGate> = cluster_object(documents)?;
        let mut machine_configs: Vec<MachineConfig> = objects_of_kind(documents)?;
        machine_configs.retain(|config| !config.name_any().starts_with(RENDERED_PREFIX));
        Ok(Self {
            pools,
            machine_configs,
            image,
            content_source_policies: objects_of_kind(documents)?,
            digest_mirror_sets: objects_of_kind(documents)?,
            tag_mirror_sets: objects_of_kind(documents)?,
            cluster_image_policies: objects_of_kind(documents)?,
            image_policies: objects_of_kind(documents)?,
            container_runtime_configs: objects_of_kind(documents)?,
            release_image: running.map(|release| release.image).or(installed),
            pull_secret: pull_secret(documents, controller_config.as_ref())?,
            controller_config,
            api_server: cluster_object(documents)?,
            node: cluster_object(documents)?,
            gates: feature_gate.as_ref().map(|gate| gates(gate, "")).unwrap_or_default(),
            feature_gate,
            kubelet_configs: objects_of_kind(documents)?,
            machine_os_configs: objects_of_kind(documents)?,
            streams: cluster_object(documents)?,
        })
    }

    /// The inputs in the form that generators take.
    pub(super) fn sources<'a>(&'a self, templates: &'a TemplateTree) -> GenerateSources<'a> {
        let images = registries::RegistryInputs {
            image: self.image.as_ref(),
            content_source_policies: self.content_source_policies.iter().collect(),
            digest_mirror_sets: self.digest_mirror_sets.iter().collect(),
            tag_mirror_sets: self.tag_mirror_sets.iter().collect(),
            cluster_image_policies: self.cluster_image_policies.iter().collect(),
            image_policies: self.image_policies.iter().collect(),
            release_image: self.release_image.as_deref().filter(|image| !image.is_empty()),
        };
        GenerateSources {
            pools: self.pools.iter().collect(),
            machine_configs: self.machine_configs.iter().collect(),
            images,
            container_runtime_configs: self.container_runtime_configs.iter().collect(),
            templates: self.controller_config.as_ref().map(|controller_config| {
                kubelet::KubeletSources {
                    templates,
                    inputs: TemplateInputs {
                        controller_config,
                        pull_secret: self.pull_secret.as_deref(),
                        api_server: self.api_server.as_ref(),
                    },
                    gates: &self.gates,
                    node: self.node.as_ref(),
                }
            }),
            machine_os_configs: self.machine_os_configs.iter().collect(),
            kubelet_configs: self.kubelet_configs.iter().collect(),
            has_feature_gate: self.feature_gate.is_some(),
            features: FeatureGates::of(self.feature_gate.as_ref()),
        }
    }

    /// A pool by its name.
    pub(super) fn pool(&self, name: &str) -> Result<&MachineConfigPool> {
        let found = self.pools.iter().find(|pool| pool.name_any() == name);
        let Some(pool) = found else {
            let names: Vec<String> = self.pools.iter().map(ResourceExt::name_any).collect();
            bail!(
                "MachineConfigPool {name} is not in the inputs, which contain {}: \
                 add its manifest with -f, or name another with --pool",
                names.join(", ")
            );
        };
        Ok(pool)
    }
}

/// The objects of a kind. An object that is given twice is an error: choosing one would be a guess.
pub(super) fn objects_of_kind<K: Resource<DynamicType = ()> + DeserializeOwned>(
    documents: &[ManifestDocument],
) -> Result<Vec<K>> {
    let (kind, group) = (K::kind(&()), K::group(&()));
    let mut seen: HashMap<(String, &str), &ManifestDocument> = HashMap::new();
    let mut objects = Vec::new();
    for document in documents {
        let given = document.api_version().split('/').next().unwrap_or_default();
        if document.kind() != kind || !(given.is_empty() || given == group) {
            continue;
        }
        let object: K = typed(document)?;
        let key = (object.meta().namespace.clone().unwrap_or_default(), document.name());
        if let Some(first) = seen.insert(key, document) {
            bail!(
                "{} is given twice: in {} and in {}; remove one",
                document.object_name(),
                first.origin,
                document.origin
            );
        }
        objects.push(object);
    }
    Ok(objects)
}

/// Parses an object. One without a `spec` has an empty one, as when MCO reads a manifest; an API server
/// would refuse it where its kind requires one.
fn typed<K: DeserializeOwned>(document: &ManifestDocument) -> Result<K> {
    let refused = match document.typed() {
        Err(refused) if document.value.get("spec").is_none() => refused,
        parsed => return parsed,
    };
    let mut with_spec = document.clone();
    if let Some(object) = with_spec.value.as_object_mut() {
        object.insert("spec".to_owned(), serde_json::json!({}));
    }
    with_spec.typed().map_err(|_| refused)
}

/// The object `cluster` of a kind.
pub(super) fn cluster_object<K: Resource<DynamicType = ()> + DeserializeOwned>(
    documents: &[ManifestDocument],
) -> Result<Option<K>> {
    Ok(objects_of_kind::<K>(documents)?.into_iter().find(|object| object.name_any() == CLUSTER))
}

/// The pull secret that the ControllerConfig names, if it is in the manifests.
fn pull_secret(
    documents: &[ManifestDocument],
    config: Option<&ControllerConfig>,
) -> Result<Option<Vec<u8>>> {
    let Some(reference) = config.and_then(|config| config.spec.pull_secret.as_ref()) else {
        return Ok(None);
    };
    let secrets: Vec<Secret> = objects_of_kind(documents)?;
    let found = secrets.into_iter().find(|secret| {
        secret.metadata.name == reference.name && secret.metadata.namespace == reference.namespace
    });
    let data = found.and_then(|secret| secret.data?.remove(".dockerconfigjson"));
    Ok(data.map(|data| data.0))
}

/// The pull secret in the file of `--pull-secret`.
pub(super) fn read_pull_secret(path: &Path) -> Result<Vec<u8>> {
    let shown = || format!("--pull-secret {}", path.display());
    let text = fs::read_to_string(path).with_context(shown)?;
    let file = ManifestText { file: path.to_owned(), text };
    let documents = manifests::parse(&file).with_context(shown)?;
    let object = documents.first().map(|document| &document.value).unwrap_or(&Value::Null);
    bootstrap::pull_secret(object, &file.text).with_context(shown)
}
