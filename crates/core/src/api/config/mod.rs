//! The objects of `config.openshift.io`: the cluster's configuration as its administrators declared
//! it.
//!
//! Machinist reads these and writes none of them. Each type names the fields that are read and
//! keeps the others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::nullable::UnknownFields;

mod api_server;
mod cluster_operator;
mod cluster_version;
mod crio_credential_provider_config;
mod dns;
mod feature_gate;
mod image;
mod image_digest_mirror_set;
mod image_mirrors;
mod image_policy;
mod image_tag_mirror_set;
mod infrastructure;
mod network;
mod node;
mod proxy;
mod scheduler;
mod signature;
mod signature_rules;

pub use api_server::{APIServer, APIServerSpec, APIServerStatus};
pub use cluster_operator::{
    ClusterOperator, ClusterOperatorSpec, ClusterOperatorStatus, OperandVersion, RelatedObject,
};
pub use cluster_version::{
    ClusterVersion, ClusterVersionSpec, ClusterVersionStatus, Release, UpdateHistory,
};
pub use crio_credential_provider_config::{
    CRIOCredentialProviderConfig, CRIOCredentialProviderConfigSpec,
    CRIOCredentialProviderConfigStatus,
};
pub use dns::{DNS, DNSSpec, DNSStatus};
pub use feature_gate::{
    CustomFeatureGates, Feature, FeatureGate, FeatureGateAttributes, FeatureGateDetails,
    FeatureGateSpec, FeatureGateStatus, FeatureGates,
};
pub use image::{Image, ImageSpec, ImageStatus, RegistryLocation, RegistrySources};
pub use image_digest_mirror_set::{
    ImageDigestMirrorSet, ImageDigestMirrorSetSpec, ImageDigestMirrorSetStatus,
};
pub use image_mirrors::ImageMirrors;
pub use image_policy::{
    ClusterImagePolicy, ClusterImagePolicySpec, ImagePolicy, ImagePolicySpec, ImagePolicyStatus,
};
pub use image_tag_mirror_set::{ImageTagMirrorSet, ImageTagMirrorSetSpec, ImageTagMirrorSetStatus};
pub use infrastructure::{
    AzurePlatformStatus, ConfigMapFileReference, Infrastructure, InfrastructureSpec,
    InfrastructureStatus, OnPremisePlatformStatus, PlatformLoadBalancer, PlatformSpec,
    PlatformStatus,
};
pub use network::{
    MTUMigration, MTUMigrationValues, Network, NetworkMigration, NetworkSpec, NetworkStatus,
};
pub use node::{NodeConfig, NodeConfigSpec, NodeConfigStatus};
pub use proxy::{Proxy, ProxySpec, ProxyStatus};
pub use scheduler::{Scheduler, SchedulerSpec, SchedulerStatus};
pub use signature::{
    ExactRepository, FulcioCAWithRekor, FulcioSubject, ImagePolicyPkiRootOfTrust,
    ImageSigstoreVerificationPolicy, PkiCertificateSubject, PublicKey, RemapIdentity, RootOfTrust,
    SignedIdentity,
};

/// A ConfigMap in the namespace `openshift-config`, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct ConfigMapNameReference {
    /// The name of the ConfigMap.
    pub name: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}
