//! ImageDigestMirrorSet: mirrors for images that are named by digest.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::image_mirrors::ImageMirrors;
use crate::api::condition::{self, Condition};
use crate::api::nullable::UnknownFields;
use crate::api::schema;

/// Mirrors that machines may pull an image from instead of its source, if they pull by digest.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "ImageDigestMirrorSet",
    shortname = "idms",
    status = "ImageDigestMirrorSetStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Mirrors for images that are named by digest."
)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageDigestMirrorSetSpec {
    /// The mirrors of each source.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_digest_mirrors: Option<Vec<ImageMirrors>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Whether the mirrors were applied. OpenShift's definition of the kind drops this status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ImageDigestMirrorSetStatus {
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
    ImageDigestMirrorSet,
    schema::RootSchema::new::<ImageDigestMirrorSetSpec>()
        .status::<ImageDigestMirrorSetStatus>()
        .preserve_unknown_fields(),
);
