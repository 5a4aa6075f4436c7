//! MachineConfigNode: the update progress of one machine.
//!
//! There is one per machine, with the machine's name. The machine's daemon records each step of an
//! update in it, so that `kubectl get machineconfignodes` shows what each machine is doing.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::{self, Condition};
use super::internal_release_image::LocalRelease;
use super::nullable::UnknownFields;
use super::reference::NameReference;
use super::{rules, schema};

/// The update progress of one machine: its desired configuration, its current configuration, and
/// the steps it has completed.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::duplicated_attributes, reason = "columns are alike in type and priority")]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineConfigNode",
    status = "MachineConfigNodeStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Where one machine is in an update.",
    label("openshift.io/operator-managed", ""),
    printcolumn(name = "PoolName", type_ = "string", json_path = ".spec.pool.name"),
    printcolumn(
        name = "DesiredConfig",
        type_ = "string",
        json_path = ".spec.configVersion.desired"
    ),
    printcolumn(
        name = "CurrentConfig",
        type_ = "string",
        json_path = ".status.configVersion.current"
    ),
    printcolumn(
        name = "Updated",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Updated")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "UpdatePrepared",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="UpdatePrepared")].status"#,
        priority = 1
    ),
    printcolumn(
        name = "UpdateExecuted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="UpdateExecuted")].status"#,
        priority = 1
    ),
    printcolumn(
        name = "UpdatePostActionComplete",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="UpdatePostActionComplete")].status"#,
        priority = 1
    ),
    printcolumn(
        name = "UpdateComplete",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="UpdateComplete")].status"#,
        priority = 1
    ),
    printcolumn(
        name = "Resumed",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Resumed")].status"#,
        priority = 1
    ),
    printcolumn(
        name = "UpdatedFilesAndOS",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="AppliedFilesAndOS")].status"#,
        priority = 1
    ),
    printcolumn(
        name = "CordonedNode",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Cordoned")].status"#,
        priority = 1
    ),
    printcolumn(
        name = "DrainedNode",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Drained")].status"#,
        priority = 1
    ),
    printcolumn(
        name = "RebootedNode",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="RebootedNode")].status"#,
        priority = 1
    ),
    printcolumn(
        name = "UncordonedNode",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Uncordoned")].status"#,
        priority = 1
    )
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["configVersion", "node", "pool"]))]
pub struct MachineConfigNodeSpec {
    /// The machine.
    pub node: NameReference,
    /// The pool of the machine.
    pub pool: NameReference,
    /// The desired configuration of the machine.
    pub config_version: DesiredConfigVersion,
    /// The desired image of the machine, if its pool builds images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_image: Option<DesiredConfigImage>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The desired configuration of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["desired"]))]
pub struct DesiredConfigVersion {
    /// The name of the rendered config; `not-yet-set` until it is known.
    #[schemars(
        length(max = 253),
        extend("x-kubernetes-validations" = rules::lowercase_subdomain())
    )]
    pub desired: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The desired image of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["desiredImage"]))]
pub struct DesiredConfigImage {
    /// The image, by digest.
    #[schemars(
        length(min = 1, max = 447),
        extend("x-kubernetes-validations" = rules::image_by_digest())
    )]
    pub desired_image: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The update progress of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigNodeStatus {
    /// The generation that this status was written for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        range(min = 1),
        extend("x-kubernetes-validations" = rules::never_decreases("observedGeneration"))
    )]
    pub observed_generation: Option<i64>,
    /// The steps of an update and their results.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::standard_conditions", length(max = 20))]
    pub conditions: Option<Vec<Condition>>,
    /// The current and the desired configuration of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_version: Option<ConfigVersionStatus>,
    /// The current and the desired image of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1))]
    pub config_image: Option<ConfigImageStatus>,
    /// The progress of pinning images on the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 100),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pinned_image_sets: Option<Vec<NodePinnedImageSet>>,
    /// The release images that the machine serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_release_image: Option<NodeInternalReleaseImage>,
    /// Configuration changes that cannot be applied to a running machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["fieldPath"])
    )]
    pub irreconcilable_changes: Option<Vec<IrreconcilableChange>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The current and the desired configuration of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["desired"]))]
pub struct ConfigVersionStatus {
    /// The name of the machine's current rendered config.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 253),
        extend("x-kubernetes-validations" = rules::lowercase_subdomain())
    )]
    pub current: Option<String>,
    /// The name of the machine's desired rendered config.
    #[schemars(
        length(max = 253),
        extend("x-kubernetes-validations" = rules::lowercase_subdomain())
    )]
    pub desired: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The current and the desired image of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigImageStatus {
    /// The image that the machine runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 447),
        extend("x-kubernetes-validations" = rules::image_by_digest())
    )]
    pub current_image: Option<String>,
    /// The image that the machine should run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 447),
        extend("x-kubernetes-validations" = rules::image_by_digest())
    )]
    pub desired_image: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The progress of one PinnedImageSet on a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["name"],
    "x-kubernetes-validations" = rules::pinned_image_generations()
))]
pub struct NodePinnedImageSet {
    /// The name of the PinnedImageSet.
    #[schemars(
        length(max = 253),
        extend("x-kubernetes-validations" = rules::lowercase_subdomain())
    )]
    pub name: String,
    /// The generation of the set that the machine has pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        range(min = 1),
        extend("x-kubernetes-validations" = rules::never_decreases("currentGeneration"))
    )]
    pub current_generation: Option<i32>,
    /// The generation of the set that the machine should pin.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        range(min = 1),
        extend("x-kubernetes-validations" = rules::never_decreases("desiredGeneration"))
    )]
    pub desired_generation: Option<i32>,
    /// The generation of the set that the machine last failed to pin.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        range(min = 1),
        extend("x-kubernetes-validations" = rules::never_decreases("lastFailedGeneration"))
    )]
    pub last_failed_generation: Option<i32>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub last_failed_generation_error: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The release images that a machine serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["releases"]))]
pub struct NodeInternalReleaseImage {
    /// The releases.
    #[schemars(
        length(min = 1, max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub releases: Vec<LocalRelease>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A configuration change that cannot be applied to a running machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["diff", "fieldPath"]))]
pub struct IrreconcilableChange {
    /// The field that changed.
    #[schemars(
        length(min = 1, max = 70),
        extend("x-kubernetes-validations" = rules::field_path())
    )]
    pub field_path: String,
    /// The difference.
    #[schemars(length(min = 1, max = 4096))]
    pub diff: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    MachineConfigNode,
    schema::RootSchema::new::<MachineConfigNodeSpec>()
        .status::<MachineConfigNodeStatus>()
        .rules(rules::named_after_node()),
);
