//! Node: settings of all machines of a cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::condition::{self, Condition};
use crate::api::nullable::UnknownFields;
use crate::api::schema;

/// Settings of all machines of the cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Node",
    // `Node` and `NodeSpec` are the core kind of Kubernetes.
    root = "NodeConfig",
    status = "NodeConfigStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Settings of all the machines of the cluster."
)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeConfigSpec {
    /// The version of control groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["v2", ""]))]
    pub cgroup_mode: Option<String>,
    /// How soon the cluster reacts to a machine that stops responding.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "enum" = ["Default", "MediumUpdateAverageReaction", "LowUpdateSlowReaction"]
    ))]
    pub worker_latency_profile: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Whether the settings were applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeConfigStatus {
    /// The conditions of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::standard_conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    NodeConfig,
    schema::RootSchema::new::<NodeConfigSpec>()
        .status::<NodeConfigStatus>()
        .preserve_unknown_fields()
);
