//! The CustomResourceDefinitions that an API server needs to store the kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation,
};
use kube::CustomResourceExt;
use schemars::{JsonSchema, SchemaGenerator};

use super::{
    ContainerRuntimeConfig, ControllerConfig, ImageContentSourcePolicy, InternalReleaseImage,
    KubeletConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineConfiguration,
    MachineOSBuild, MachineOSConfig, OSImageStream, PinnedImageSet, config,
};

/// The definitions of all kinds: first ours, then those of the cluster that we read.
///
/// An OpenShift cluster already has all of them. Elsewhere the first twelve are required; the
/// others are needed only if their objects are used.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut network = crd::<config::Network>();
    for version in &mut network.spec.versions {
        // Its status is written together with its spec.
        version.subresources = None;
    }
    vec![
        crd::<MachineConfig>(),
        crd::<MachineConfigPool>(),
        crd::<MachineConfigNode>(),
        crd::<ControllerConfig>(),
        crd::<KubeletConfig>(),
        crd::<ContainerRuntimeConfig>(),
        crd::<MachineOSConfig>(),
        crd::<MachineOSBuild>(),
        crd::<PinnedImageSet>(),
        crd::<OSImageStream>(),
        crd::<InternalReleaseImage>(),
        crd::<MachineConfiguration>(),
        crd::<ImageContentSourcePolicy>(),
        crd::<config::ImageDigestMirrorSet>(),
        crd::<config::ImageTagMirrorSet>(),
        crd::<config::Image>(),
        crd::<config::ClusterImagePolicy>(),
        crd::<config::ImagePolicy>(),
        crd::<config::CRIOCredentialProviderConfig>(),
        crd::<config::Infrastructure>(),
        crd::<config::ClusterVersion>(),
        crd::<config::ClusterOperator>(),
        crd::<config::FeatureGate>(),
        network,
        crd::<config::DNS>(),
        crd::<config::Proxy>(),
        crd::<config::APIServer>(),
        crd::<config::Scheduler>(),
        crd::<config::NodeConfig>(),
    ]
}

/// Argo CD applies what has a lower number first; `deploy/system` has the others.
const SYNC_WAVE: (&str, &str) = ("argocd.argoproj.io/sync-wave", "-3");

fn crd<K: CustomResourceExt + JsonSchema>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    let annotations = crd.metadata.annotations.get_or_insert_default();
    annotations.insert(SYNC_WAVE.0.to_owned(), SYNC_WAVE.1.to_owned());
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    // Uses the schema that the kind provides: `K::crd` would loosen it.
    let schema = K::json_schema(&mut SchemaGenerator::default()).to_value();
    if let Ok(schema) = serde_json::from_value::<Option<_>>(schema) {
        for version in &mut crd.spec.versions {
            version.schema = Some(CustomResourceValidation { open_api_v3_schema: schema.clone() });
        }
    }
    crd
}
