//! ClusterVersion: which release a cluster runs, and which it ran before.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::nullable::{Nullable, UnknownFields};
use crate::api::schema;

/// Which release the cluster runs, and which it ran before.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::duplicated_attributes, reason = "columns are alike in type and priority")]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "ClusterVersion",
    status = "ClusterVersionStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Which release the cluster runs.",
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = r#".status.history[?(@.state=="Completed")].version"#
    ),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#
    ),
    printcolumn(
        name = "Progressing",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Progressing")].status"#
    ),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = r#".status.conditions[?(@.type=="Progressing")].lastTransitionTime"#
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Progressing")].message"#
    )
)]
#[serde(default)]
#[schemars(extend("required" = ["clusterID"]))]
pub struct ClusterVersionSpec {
    /// The unique ID of the cluster.
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The releases of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClusterVersionStatus {
    /// The release that the cluster runs or is updating to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<Release>,
    /// The releases that the cluster has run, newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub history: Option<Vec<UpdateHistory>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A release.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["image", "version"]))]
pub struct Release {
    /// The architectures; `Multi` for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Multi", ""]))]
    pub architecture: Option<String>,
    /// The version.
    pub version: String,
    /// The image, by digest.
    pub image: String,
    /// The URL of the release notes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The channels that contain the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub channels: Option<Vec<String>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A release that the cluster ran or tried to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["completionTime", "image", "startedTime", "state", "verified"]))]
pub struct UpdateHistory {
    /// `Completed`, or `Partial` if the update did not finish.
    pub state: String,
    /// When the update to it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_time: Option<Time>,
    /// When the update to it ended.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    pub completion_time: Nullable<Time>,
    /// The version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The image, by digest.
    pub image: String,
    /// Whether its signature was verified.
    pub verified: bool,
    /// Risks that were accepted for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_risks: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    ClusterVersion,
    schema::RootSchema::new::<ClusterVersionSpec>()
        .status::<ClusterVersionStatus>()
        .preserve_unknown_fields(),
);
