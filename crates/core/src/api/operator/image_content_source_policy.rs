//! ImageContentSourcePolicy: mirrors of image registries, in the legacy format.
//!
//! Superseded by ImageDigestMirrorSet, and still found in many clusters.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::condition::{self, Condition};
use crate::api::nullable::UnknownFields;
use crate::api::schema;

/// Mirrors that machines may pull an image from instead of its source, if they pull by digest.
/// Superseded by ImageDigestMirrorSet.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.openshift.io",
    version = "v1alpha1",
    kind = "ImageContentSourcePolicy",
    plural = "imagecontentsourcepolicies",
    status = "ImageContentSourcePolicyStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Mirrors of image registries, in the old notation."
)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageContentSourcePolicySpec {
    /// The mirrors of each source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository_digest_mirrors: Option<Vec<RepositoryDigestMirrors>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The mirrors of one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["source"]))]
pub struct RepositoryDigestMirrors {
    /// The source that image references name.
    pub source: String,
    /// The mirrors, in the order in which they are tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirrors: Option<Vec<String>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Whether the mirrors were applied. OpenShift's definition of the kind drops this status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ImageContentSourcePolicyStatus {
    /// `Success` or `Failure`, newest last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::legacy_conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    ImageContentSourcePolicy,
    schema::RootSchema::new::<ImageContentSourcePolicySpec>()
        .status::<ImageContentSourcePolicyStatus>()
        .preserve_unknown_fields(),
);
