//! Scheduler: where pods may run.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigMapNameReference;
use crate::api::nullable::UnknownFields;
use crate::api::schema;

/// Where pods may run; most importantly, whether the control plane runs user pods.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Scheduler",
    status = "SchedulerStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Where pods may run."
)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulerSpec {
    /// A legacy policy; no longer used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<ConfigMapNameReference>,
    /// How pods are distributed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["", "LowNodeUtilization", "HighNodeUtilization", "NoScoring"]))]
    pub profile: Option<String>,
    /// The node selector of pods that specify none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_node_selector: Option<String>,
    /// Whether control plane machines run user pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masters_schedulable: Option<bool>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The status has no fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SchedulerStatus {
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    Scheduler,
    schema::RootSchema::new::<SchedulerSpec>()
        .status::<SchedulerStatus>()
        .preserve_unknown_fields(),
);
