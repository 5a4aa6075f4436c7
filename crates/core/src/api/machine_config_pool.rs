//! MachineConfigPool: a group of machines with the same configuration.
//!
//! A pool says which MachineConfigs it merges, which machines belong to it, and how many of them
//! may be unavailable while a change is rolled out. Its status shows the progress of the rollout.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::{self, Condition};
use super::nullable::UnknownFields;
use super::{rules, schema};

/// A group of machines with the same configuration: which MachineConfigs make up the configuration,
/// which machines belong to the pool, and how fast a change is rolled out.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::duplicated_attributes, reason = "columns are alike in type and priority")]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineConfigPool",
    shortname = "mcp",
    status = "MachineConfigPoolStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "A group of machines that are configured alike.",
    label("openshift.io/operator-managed", ""),
    printcolumn(name = "Config", type_ = "string", json_path = ".status.configuration.name"),
    printcolumn(
        name = "Updated",
        type_ = "string",
        description = "Whether all the machines have the wanted configuration.",
        json_path = r#".status.conditions[?(@.type=="Updated")].status"#
    ),
    printcolumn(
        name = "Updating",
        type_ = "string",
        description = "Whether a change is being rolled out.",
        json_path = r#".status.conditions[?(@.type=="Updating")].status"#
    ),
    printcolumn(
        name = "Degraded",
        type_ = "string",
        description = "Whether something keeps the pool from its configuration.",
        json_path = r#".status.conditions[?(@.type=="Degraded")].status"#
    ),
    printcolumn(
        name = "MachineCount",
        type_ = "number",
        description = "How many machines the pool has.",
        json_path = ".status.machineCount"
    ),
    printcolumn(
        name = "ReadyMachineCount",
        type_ = "number",
        description = "How many machines are up to date and ready.",
        json_path = ".status.readyMachineCount"
    ),
    printcolumn(
        name = "UpdatedMachineCount",
        type_ = "number",
        description = "How many machines are up to date.",
        json_path = ".status.updatedMachineCount"
    ),
    printcolumn(
        name = "DegradedMachineCount",
        type_ = "number",
        description = "How many machines could not be updated.",
        json_path = ".status.degradedMachineCount"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Blocked",
        type_ = "string",
        description = "What keeps the rollout from going on, in one word.",
        json_path = r#".status.conditions[?(@.type=="RolloutBlocked")].reason"#,
        priority = 1
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        description = "The machines, pods and budgets that keep the rollout from going on.",
        json_path = r#".status.conditions[?(@.type=="RolloutBlocked")].message"#,
        priority = 1
    )
)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigPoolSpec {
    /// The MachineConfigs that the pool merges, by their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub machine_config_selector: Option<LabelSelector>,
    /// The machines that belong to the pool, by the labels of their nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// Whether rollouts are paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// How many machines may be unavailable at the same time, as a number or a percentage; 1 if
    /// unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_unavailable: Option<IntOrString>,
    /// The rendered config that the machines should have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pool_configuration")]
    pub configuration: Option<PoolConfiguration>,
    /// Images that the machines keep on their disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 100),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pinned_image_sets: Option<Vec<PinnedImageSetRef>>,
    /// The stream of operating system images that the machines follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_image_stream: Option<OSImageStreamReference>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A reference to a rendered config and the configs that it was merged from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolConfiguration {
    /// The API version of the rendered config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// A part of the object; not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
    /// The kind of the rendered config: `MachineConfig`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The name of the rendered config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Not used: a MachineConfig has no namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The MachineConfigs that were merged into this one, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Vec<ObjectReference>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub other: UnknownFields,
}

/// A PinnedImageSet, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct PinnedImageSetRef {
    /// The name of the PinnedImageSet.
    #[schemars(
        length(min = 1, max = 253),
        regex(
            pattern = r"^([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9]))*$"
        )
    )]
    pub name: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A stream of operating system images, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct OSImageStreamReference {
    /// The name of the stream in the OSImageStream object `cluster`.
    #[schemars(
        length(min = 1, max = 253),
        extend("x-kubernetes-validations" = rules::subdomain())
    )]
    pub name: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The progress of a pool's rollout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigPoolStatus {
    /// The generation of the pool that this status was written for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The rendered config of the last completed rollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pool_configuration")]
    pub configuration: Option<PoolConfiguration>,
    /// The number of machines in the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_count: Option<i32>,
    /// The number of machines with the desired config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_machine_count: Option<i32>,
    /// The number of machines with the desired config that are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_machine_count: Option<i32>,
    /// The number of machines that are unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable_machine_count: Option<i32>,
    /// The number of machines whose update failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded_machine_count: Option<i32>,
    /// The conditions of the pool: `Updated`, `Updating`, `Degraded` and more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::legacy_conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// When the certificates on the machines expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cert_expirys: Option<Vec<CertExpiry>>,
    /// The progress of tasks that are independent of the configuration, such as pinning images.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["poolSynchronizerType"]
    ))]
    pub pool_synchronizers_status: Option<Vec<PoolSynchronizerStatus>>,
    /// The stream of operating system images that the machines follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_image_stream: Option<OSImageStreamReference>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// When a certificate expires.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["bundle", "subject"]))]
pub struct CertExpiry {
    /// The bundle that contains the certificate.
    pub bundle: String,
    /// The subject of the certificate.
    pub subject: String,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Time>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The progress of a task that is independent of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = [
        "availableMachineCount",
        "machineCount",
        "poolSynchronizerType",
        "readyMachineCount",
        "unavailableMachineCount",
        "updatedMachineCount"
    ],
    "x-kubernetes-validations" = rules::machine_counts()
))]
pub struct PoolSynchronizerStatus {
    /// The task: `PinnedImageSets`.
    #[schemars(length(max = 256), extend("enum" = ["PinnedImageSets"]))]
    pub pool_synchronizer_type: String,
    /// The number of machines that take part.
    #[schemars(range(min = 0))]
    pub machine_count: i64,
    /// The number of machines that have completed the task.
    #[schemars(range(min = 0))]
    pub updated_machine_count: i64,
    /// The number of machines that have completed the task and are ready.
    #[schemars(range(min = 0))]
    pub ready_machine_count: i64,
    /// The number of machines that are able to take part.
    #[schemars(range(min = 0))]
    pub available_machine_count: i64,
    /// The number of machines that are not able to take part.
    #[schemars(range(min = 0))]
    pub unavailable_machine_count: i64,
    /// The generation that the counts refer to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        range(min = 0),
        extend("x-kubernetes-validations" = rules::generation_or_zero())
    )]
    pub observed_generation: Option<i64>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

impl MachineConfigPool {
    /// The rendered config that the machines of the pool should have; empty if there is none yet.
    #[must_use]
    pub fn target_config(&self) -> &str {
        let configuration = self.spec.configuration.as_ref();
        configuration.and_then(|configuration| configuration.name.as_deref()).unwrap_or_default()
    }
}

schema::kind_schema!(
    MachineConfigPool,
    schema::RootSchema::new::<MachineConfigPoolSpec>().status::<MachineConfigPoolStatus>(),
);
