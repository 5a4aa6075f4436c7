//! OSImageStream: the operating systems that a cluster can run.
//!
//! A release may contain more than one operating system. The one object, called `cluster`, lists
//! them and names the default.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::nullable::UnknownFields;
use super::{rules, schema};

/// The operating systems that the cluster can run, and the default of the pools.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "OSImageStream",
    status = "OSImageStreamStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "The operating systems that the cluster can run.",
    label("openshift.io/operator-managed", "")
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["defaultStream"]))]
pub struct OSImageStreamSpec {
    /// The stream of pools that choose none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        extend("x-kubernetes-validations" = rules::subdomain())
    )]
    pub default_stream: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The available streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["availableStreams", "defaultStream"],
    "x-kubernetes-validations" = rules::os_image_stream_status()
))]
pub struct OSImageStreamStatus {
    /// The streams of this release.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 100),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub available_streams: Option<Vec<OSImageStreamSet>>,
    /// The stream of pools that choose none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        extend("x-kubernetes-validations" = rules::subdomain())
    )]
    pub default_stream: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// One stream: an operating system and its extensions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "osExtensionsImage", "osImage"]))]
pub struct OSImageStreamSet {
    /// The name of the stream.
    #[schemars(
        length(min = 1, max = 253),
        extend("x-kubernetes-validations" = rules::subdomain())
    )]
    pub name: String,
    /// The operating system image, by digest.
    #[schemars(
        length(min = 1, max = 447),
        extend("x-kubernetes-validations" = rules::image_by_digest())
    )]
    pub os_image: String,
    /// The image with the extensions, by digest.
    #[schemars(
        length(min = 1, max = 447),
        extend("x-kubernetes-validations" = rules::image_by_digest())
    )]
    pub os_extensions_image: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    OSImageStream,
    schema::RootSchema::new::<OSImageStreamSpec>()
        .status::<OSImageStreamStatus>()
        .rules(rules::os_image_stream()),
);
