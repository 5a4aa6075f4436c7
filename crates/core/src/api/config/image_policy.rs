//! ClusterImagePolicy and ImagePolicy: the signatures that images must carry.
//!
//! The first applies to the whole cluster, the second to the images of one namespace.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::condition::{self, Condition};
use crate::api::nullable::UnknownFields;
use crate::api::schema;

use super::signature::ImageSigstoreVerificationPolicy;
use super::signature_rules::scope;

/// The signatures that images must carry in the whole cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "ClusterImagePolicy",
    plural = "clusterimagepolicies",
    status = "ImagePolicyStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Whose signature images must carry, in the whole cluster."
)]
#[serde(default)]
#[schemars(extend("required" = ["policy", "scopes"]))]
pub struct ClusterImagePolicySpec {
    /// The images that the policy applies to: registries, repositories or single images.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "set"),
        transform = schema::each_item(scope())
    )]
    pub scopes: Option<Vec<String>>,
    /// The signatures that these images must carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<ImageSigstoreVerificationPolicy>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The signatures that images must carry in one namespace.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "ImagePolicy",
    plural = "imagepolicies",
    namespaced,
    status = "ImagePolicyStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Whose signature images must carry, in one namespace."
)]
#[serde(default)]
#[schemars(extend("required" = ["policy", "scopes"]))]
pub struct ImagePolicySpec {
    /// The images that the policy applies to: registries, repositories or single images.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "set"),
        transform = schema::each_item(scope())
    )]
    pub scopes: Option<Vec<String>>,
    /// The signatures that these images must carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<ImageSigstoreVerificationPolicy>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Whether the policy was applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ImagePolicyStatus {
    /// The conditions of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::standard_conditions", length(min = 1, max = 8))]
    pub conditions: Option<Vec<Condition>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    ClusterImagePolicy,
    schema::RootSchema::new::<ClusterImagePolicySpec>()
        .status::<ImagePolicyStatus>()
        .preserve_unknown_fields(),
);
schema::kind_schema!(
    ImagePolicy,
    schema::RootSchema::new::<ImagePolicySpec>()
        .status::<ImagePolicyStatus>()
        .preserve_unknown_fields(),
);
