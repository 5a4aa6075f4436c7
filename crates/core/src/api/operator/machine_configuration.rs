//! MachineConfiguration: how the system itself is run.
//!
//! There is one, called `cluster`. An administrator sets log levels, what a change costs a machine
//! (see [`NodeDisruptionPolicy`]) and what is done about old boot images.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::boot_images::{
    BootImageSkewEnforcement, BootImageSkewEnforcementStatus, ManagedBootImages,
};
use super::disruption_policy::{NodeDisruptionPolicy, NodeDisruptionPolicyStatus};
use crate::api::condition::{self, Condition};
use crate::api::nullable::{Nullable, UnknownFields};
use crate::api::{rules, schema};

/// How the system itself is run: log levels, what a change costs a machine, boot images.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.openshift.io",
    version = "v1",
    kind = "MachineConfiguration",
    status = "MachineConfigurationStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "How the system itself is run."
)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigurationSpec {
    /// Whether the operator does its work: `Managed`, `Unmanaged`, `Force` or `Removed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(Managed|Unmanaged|Force|Removed)$"))]
    pub management_state: Option<String>,
    /// How much the parts log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "x-default" = "Normal",
        "enum" = ["", "Normal", "Debug", "Trace", "TraceAll"]
    ))]
    pub log_level: Option<String>,
    /// How much the operator logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "x-default" = "Normal",
        "enum" = ["", "Normal", "Debug", "Trace", "TraceAll"]
    ))]
    pub operator_log_level: Option<String>,
    /// Settings that nobody supports.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    #[schemars(schema_with = "schema::nullable_any_object")]
    pub unsupported_config_overrides: Nullable<Value>,
    /// Settings that the operator observed.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    #[schemars(schema_with = "schema::nullable_any_object")]
    pub observed_config: Nullable<Value>,
    /// A new text here has everything deployed again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_redeployment_reason: Option<String>,
    /// How many failed revisions are kept; -1 for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_revision_limit: Option<i32>,
    /// How many good revisions are kept; -1 for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded_revision_limit: Option<i32>,
    /// Whose boot images the system replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_boot_images: Option<ManagedBootImages>,
    /// What a change of a file, a unit or the SSH keys costs a machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_disruption_policy: Option<NodeDisruptionPolicy>,
    /// Changes that are let through although running machines cannot take them up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1))]
    pub irreconcilable_validation_overrides: Option<IrreconcilableValidationOverrides>,
    /// What happens when boot images are too old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_image_skew_enforcement: Option<BootImageSkewEnforcement>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Changes that are let through although running machines cannot take them up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IrreconcilableValidationOverrides {
    /// Parts of the storage section: `Disks`, `FileSystems`, `Raid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 3),
        extend("x-kubernetes-list-type" = "set"),
        transform = schema::each_item(json!({"enum": ["Disks", "FileSystems", "Raid"]}))
    )]
    pub storage: Option<Vec<String>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// What is in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigurationStatus {
    /// The generation that this status was written for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What holds for the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::standard_conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// What a change of a file, a unit or the SSH keys costs a machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_disruption_policy_status: Option<NodeDisruptionPolicyStatus>,
    /// Whose boot images the system replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_boot_images_status: Option<ManagedBootImages>,
    /// What happens when boot images are too old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_image_skew_enforcement_status: Option<BootImageSkewEnforcementStatus>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    MachineConfiguration,
    schema::RootSchema::new::<MachineConfigurationSpec>()
        .status::<MachineConfigurationStatus>()
        .rules(rules::automatic_skew()),
);
