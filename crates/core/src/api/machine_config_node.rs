//! MachineConfigNode: where one machine is in an update.
//!
//! There is one per machine, under the machine's name. The machine's daemon writes each step of an
//! update into it, so that `kubectl get machineconfignodes` shows who is doing what.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::{self, Condition};
use super::internal_release_image::LocalRelease;
use super::nullable::UnknownFields;
use super::reference::NameReference;
use super::{rules, schema};

/// Where one machine is in an update: which configuration it is to have, which it has, and which
/// steps it has taken.
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
    /// The pool that the machine is in.
    pub pool: NameReference,
    /// The configuration that the machine is to have.
    pub config_version: DesiredConfigVersion,
    /// The image that the machine is to run, when its pool builds images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_image: Option<DesiredConfigImage>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The configuration that a machine is to have.
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

/// The image that a machine is to run.
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

/// What a machine has done so far.
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
    /// The steps of an update and whether they are done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::standard_conditions", length(max = 20))]
    pub conditions: Option<Vec<Condition>>,
    /// The configuration that the machine has and is to have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_version: Option<ConfigVersionStatus>,
    /// The image that the machine runs and is to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1))]
    pub config_image: Option<ConfigImageStatus>,
    /// How far the machine is with the images that it keeps on its disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 100),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pinned_image_sets: Option<Vec<NodePinnedImageSet>>,
    /// The release images that the machine serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_release_image: Option<NodeInternalReleaseImage>,
    /// Changes of the configuration that a running machine cannot take up.
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

/// The configuration that a machine has and is to have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["desired"]))]
pub struct ConfigVersionStatus {
    /// The name of the rendered config that the machine has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 253),
        extend("x-kubernetes-validations" = rules::lowercase_subdomain())
    )]
    pub current: Option<String>,
    /// The name of the rendered config that the machine is changing to.
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

/// The image that a machine runs and is to run.
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
    /// The image that the machine is changing to.
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

/// How far a machine is with one set of images that it keeps on its disk.
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
    /// The generation of the set that the machine has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        range(min = 1),
        extend("x-kubernetes-validations" = rules::never_decreases("currentGeneration"))
    )]
    pub current_generation: Option<i32>,
    /// The generation of the set that the machine is to have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        range(min = 1),
        extend("x-kubernetes-validations" = rules::never_decreases("desiredGeneration"))
    )]
    pub desired_generation: Option<i32>,
    /// The generation of the set that the machine last failed at.
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

/// A change of the configuration that a running machine cannot take up.
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
    /// What changed in it.
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
