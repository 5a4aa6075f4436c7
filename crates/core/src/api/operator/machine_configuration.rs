//! MachineConfiguration: settings of the operator.
//!
//! There is one, called `cluster`. An administrator sets log levels, the actions after a change
//! (see [`NodeDisruptionPolicy`]) and the handling of outdated boot images.

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

/// Settings of the operator: log levels, actions after a change, boot images.
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
    /// Whether the operator is active: `Managed`, `Unmanaged`, `Force` or `Removed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(Managed|Unmanaged|Force|Removed)$"))]
    pub management_state: Option<String>,
    /// The log level of the operands.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "x-default" = "Normal",
        "enum" = ["", "Normal", "Debug", "Trace", "TraceAll"]
    ))]
    pub log_level: Option<String>,
    /// The log level of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "x-default" = "Normal",
        "enum" = ["", "Normal", "Debug", "Trace", "TraceAll"]
    ))]
    pub operator_log_level: Option<String>,
    /// Unsupported overrides.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    #[schemars(schema_with = "schema::nullable_any_object")]
    pub unsupported_config_overrides: Nullable<Value>,
    /// Settings that the operator observed.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    #[schemars(schema_with = "schema::nullable_any_object")]
    pub observed_config: Nullable<Value>,
    /// A new value triggers a redeployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_redeployment_reason: Option<String>,
    /// How many failed revisions to keep; -1 for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_revision_limit: Option<i32>,
    /// How many successful revisions to keep; -1 for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded_revision_limit: Option<i32>,
    /// The machine resources whose boot images are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_boot_images: Option<ManagedBootImages>,
    /// The actions after a change of a file, a unit or the SSH keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_disruption_policy: Option<NodeDisruptionPolicy>,
    /// Changes that are accepted although they cannot be applied to running machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1))]
    pub irreconcilable_validation_overrides: Option<IrreconcilableValidationOverrides>,
    /// What happens if boot images are too old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_image_skew_enforcement: Option<BootImageSkewEnforcement>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Changes that are accepted although they cannot be applied to running machines.
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

/// The effective settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigurationStatus {
    /// The generation that this status was written for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::standard_conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// The actions after a change of a file, a unit or the SSH keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_disruption_policy_status: Option<NodeDisruptionPolicyStatus>,
    /// The machine resources whose boot images are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_boot_images_status: Option<ManagedBootImages>,
    /// What happens if boot images are too old.
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
