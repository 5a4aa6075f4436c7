//! Caches of the kinds that MachineConfigs are generated from.

use kube::Resource;
use machinist_core::api::config::{
    APIServer, ClusterImagePolicy, ClusterVersion, FeatureGate, FeatureGates, Image,
    ImageDigestMirrorSet, ImagePolicy, ImageTagMirrorSet, NodeConfig,
};
use machinist_core::api::names::object::{CLUSTER, CLUSTER_VERSION};
use machinist_core::api::{
    ContainerRuntimeConfig, ImageContentSourcePolicy, InternalReleaseImage, KubeletConfig,
};
use machinist_core::container_runtime::registries::RegistryInputs;
use std::sync::Arc;
use tokio::sync::watch;

use crate::kubernetes::cache::Cache;
use crate::kubernetes::reflectors::Reflectors;

/// One cache for each kind; a kind that is not served has an empty cache.
#[derive(Debug, Clone, Default)]
pub(in crate::controller) struct GenerateCaches {
    pub(super) container_runtime_configs: Cache<ContainerRuntimeConfig>,
    pub(in super::super) images: Cache<Image>,
    pub(super) content_source_policies: Cache<ImageContentSourcePolicy>,
    pub(super) digest_mirror_sets: Cache<ImageDigestMirrorSet>,
    pub(super) tag_mirror_sets: Cache<ImageTagMirrorSet>,
    pub(super) cluster_image_policies: Cache<ClusterImagePolicy>,
    pub(super) image_policies: Cache<ImagePolicy>,
    pub(super) cluster_versions: Cache<ClusterVersion>,
    pub(super) kubelet_configs: Cache<KubeletConfig>,
    pub(super) api_servers: Cache<APIServer>,
    pub(super) feature_gates: Cache<FeatureGate>,
    pub(super) node_settings: Cache<NodeConfig>,
    pub(super) internal_release_images: Cache<InternalReleaseImage>,
}

/// Applies an expression to every cache.
macro_rules! each {
    ($caches:expr, $cache:ident => $does:expr) => {{
        each!(@one $caches, $cache => $does;
            container_runtime_configs images content_source_policies digest_mirror_sets
            tag_mirror_sets cluster_image_policies image_policies cluster_versions
            kubelet_configs api_servers feature_gates node_settings internal_release_images);
    }};
    (@one $caches:expr, $cache:ident => $does:expr; $($name:ident)*) => {
        $({
            let $cache = &$caches.$name;
            $does;
        })*
    };
}

impl GenerateCaches {
    /// Starts the watches.
    pub(in crate::controller) fn start_watches(&self, reflectors: &mut Reflectors<'_>) {
        each!(self, cache => reflectors.watch_optional(cache));
    }

    /// The change counters of all caches.
    pub(super) fn changes(&self) -> Vec<watch::Receiver<u64>> {
        let mut changes = Vec::new();
        each!(self, cache => changes.push(cache.subscribe()));
        changes
    }

    /// Whether the cluster keeps its release images in a registry of its own.
    pub(super) fn has_internal_registry(&self) -> bool {
        self.internal_release_images.get(CLUSTER).is_some()
    }

    /// The FeatureGate, where there is one.
    pub(in crate::controller) fn feature_gate(&self) -> Option<Arc<FeatureGate>> {
        self.feature_gates.get(CLUSTER)
    }

    /// The objects about images.
    pub(super) fn image_objects(&self) -> ImageObjects {
        let version = self.cluster_versions.get(CLUSTER_VERSION);
        let release = version.and_then(|version| {
            let desired = version.status.as_ref()?.desired.as_ref()?;
            Some(desired.image.clone())
        });
        ImageObjects {
            image: self.images.get(CLUSTER),
            feature_gate: self.feature_gate(),
            content_source_policies: self.content_source_policies.all(),
            digest_mirror_sets: self.digest_mirror_sets.all(),
            tag_mirror_sets: self.tag_mirror_sets.all(),
            cluster_image_policies: self.cluster_image_policies.all(),
            image_policies: self.image_policies.all(),
            release_image: release.filter(|image| !image.is_empty()),
        }
    }
}

/// The objects about images at one moment.
#[derive(Debug, Default)]
pub(super) struct ImageObjects {
    pub(super) image: Option<Arc<Image>>,
    feature_gate: Option<Arc<FeatureGate>>,
    content_source_policies: Vec<Arc<ImageContentSourcePolicy>>,
    digest_mirror_sets: Vec<Arc<ImageDigestMirrorSet>>,
    tag_mirror_sets: Vec<Arc<ImageTagMirrorSet>>,
    cluster_image_policies: Vec<Arc<ClusterImagePolicy>>,
    image_policies: Vec<Arc<ImagePolicy>>,
    release_image: Option<String>,
}

impl ImageObjects {
    /// The inputs of the generator. Objects that are being deleted, or whose feature is off, are left
    /// out.
    pub(super) fn inputs(&self) -> RegistryInputs<'_> {
        fn living<K: Resource>(objects: &[Arc<K>]) -> Vec<&K> {
            let objects = objects.iter().map(AsRef::as_ref);
            objects.filter(|object| object.meta().deletion_timestamp.is_none()).collect()
        }
        let inputs = RegistryInputs {
            image: self.image.as_deref().filter(|image| image.meta().deletion_timestamp.is_none()),
            content_source_policies: living(&self.content_source_policies),
            digest_mirror_sets: living(&self.digest_mirror_sets),
            tag_mirror_sets: living(&self.tag_mirror_sets),
            cluster_image_policies: living(&self.cluster_image_policies),
            image_policies: living(&self.image_policies),
            release_image: self.release_image.as_deref(),
        };
        inputs.with_features(FeatureGates::of(self.feature_gate.as_deref()))
    }
}
