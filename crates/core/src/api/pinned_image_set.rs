//! PinnedImageSet: images that machines keep on their disks.
//!
//! A pool names the sets that its machines pull in advance and never remove, so that an update or a
//! reboot does not depend on a registry.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::nullable::UnknownFields;
use super::{rules, schema};

/// Images that the machines of a pool pull in advance and keep on their disks.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "PinnedImageSet",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Images that machines keep on their disks.",
    label("openshift.io/operator-managed", "")
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["pinnedImages"]))]
pub struct PinnedImageSetSpec {
    /// The images.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 500),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pinned_images: Option<Vec<PinnedImage>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// An image that machines keep on their disks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct PinnedImage {
    /// The image, by digest.
    #[schemars(
        length(min = 1, max = 447),
        extend("x-kubernetes-validations" = rules::image_by_digest())
    )]
    pub name: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(PinnedImageSet, schema::RootSchema::new::<PinnedImageSetSpec>());
