//! ClusterImagePolicy and ImagePolicy: whose signature an image must carry.
//!
//! The first holds for the whole cluster, the second for the images of one namespace.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::condition::{self, Condition};
use crate::api::nullable::Other;
use crate::api::schema;

use super::signature::Policy;
use super::signature_rules::scope;

/// Whose signature images must carry, in the whole cluster.
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
    /// The images this is about: registries, repositories or single images.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "set"),
        transform = schema::each(scope())
    )]
    pub scopes: Option<Vec<String>>,
    /// What is asked of their signatures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Other,
}

/// Whose signature images must carry, in one namespace.
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
    /// The images this is about: registries, repositories or single images.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "set"),
        transform = schema::each(scope())
    )]
    pub scopes: Option<Vec<String>>,
    /// What is asked of their signatures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Other,
}

/// Whether a policy was taken up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ImagePolicyStatus {
    /// What holds for the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::standard", length(min = 1, max = 8))]
    pub conditions: Option<Vec<Condition>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Other,
}

schema::kind_schema!(
    ClusterImagePolicy,
    schema::Root::new::<ClusterImagePolicySpec>().status::<ImagePolicyStatus>().open(),
);
schema::kind_schema!(
    ImagePolicy,
    schema::Root::new::<ImagePolicySpec>().status::<ImagePolicyStatus>().open(),
);
