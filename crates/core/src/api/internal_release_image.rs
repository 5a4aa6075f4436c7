//! InternalReleaseImage: release images that the cluster serves to itself.
//!
//! A cluster that is installed without a registry carries its release images on its control plane
//! machines. The one object, called `cluster`, lists the releases to keep.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::{self, Condition};
use super::nullable::UnknownFields;
use super::{rules, schema};

/// Release images that the cluster serves to itself, so that it needs no external registry.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "InternalReleaseImage",
    status = "InternalReleaseImageStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Release images that the cluster serves to itself.",
    label("openshift.io/operator-managed", "")
)]
#[serde(default)]
#[schemars(extend("required" = ["releases"]))]
pub struct InternalReleaseImageSpec {
    /// The releases to keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub releases: Option<Vec<ReleaseReference>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A release, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct ReleaseReference {
    /// The name, for example `ocp-release-bundle-4.21.0-x86_64`.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-validations" = rules::release_bundle_name())
    )]
    pub name: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The available releases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["releases"]))]
pub struct InternalReleaseImageStatus {
    /// The conditions of all releases together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::standard_conditions", length(min = 1, max = 5))]
    pub conditions: Option<Vec<Condition>>,
    /// Each release.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub releases: Option<Vec<AvailableRelease>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A release that the cluster serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct AvailableRelease {
    /// The name of the release.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-validations" = rules::release_bundle_name())
    )]
    pub name: String,
    /// The image, by digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 447),
        extend("x-kubernetes-validations" = rules::image_by_digest())
    )]
    pub image: Option<String>,
    /// The conditions of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::standard_conditions", length(min = 1, max = 5))]
    pub conditions: Option<Vec<Condition>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A release that one machine serves; its image may be on the machine itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct LocalRelease {
    /// The name of the release.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-validations" = rules::release_bundle_name())
    )]
    pub name: String,
    /// The image, by digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 447),
        extend("x-kubernetes-validations" = rules::image_by_digest_or_local())
    )]
    pub image: Option<String>,
    /// The conditions of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::standard_conditions", length(min = 1, max = 5))]
    pub conditions: Option<Vec<Condition>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    InternalReleaseImage,
    schema::RootSchema::new::<InternalReleaseImageSpec>()
        .status::<InternalReleaseImageStatus>()
        .rules(vec![rules::singleton("internalreleaseimage")]),
);
