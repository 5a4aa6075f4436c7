//! ClusterOperator: the health of one component of a cluster.
//!
//! Each operator of a cluster reports in one of these; ours is called `machine-config`.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use serde_json::Value;

use crate::api::condition::{self, Condition};
use crate::api::nullable::{Nullable, UnknownFields};
use crate::api::schema;

/// The health of one component of the cluster: its version, whether it works, whether it is
/// changing.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::duplicated_attributes, reason = "columns are alike in type and priority")]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "ClusterOperator",
    shortname = "co",
    status = "ClusterOperatorStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "How a part of the cluster is.",
    printcolumn(
        name = "Version",
        type_ = "string",
        description = "The version that the part has.",
        json_path = r#".status.versions[?(@.name=="operator")].version"#
    ),
    printcolumn(
        name = "Available",
        type_ = "string",
        description = "Whether the part works.",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#
    ),
    printcolumn(
        name = "Progressing",
        type_ = "string",
        description = "Whether the part is changing.",
        json_path = r#".status.conditions[?(@.type=="Progressing")].status"#
    ),
    printcolumn(
        name = "Degraded",
        type_ = "string",
        description = "Whether something is wrong with the part.",
        json_path = r#".status.conditions[?(@.type=="Degraded")].status"#
    ),
    printcolumn(
        name = "Since",
        type_ = "date",
        description = "Since when the part works or does not.",
        json_path = r#".status.conditions[?(@.type=="Available")].lastTransitionTime"#
    )
)]
#[serde(default)]
pub struct ClusterOperatorSpec {
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The health of one component of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterOperatorStatus {
    /// `Available`, `Progressing`, `Degraded`, `Upgradeable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::legacy_conditions_by_type")]
    pub conditions: Option<Vec<Condition>>,
    /// The versions of the operands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<Vec<OperandVersion>>,
    /// The objects to look at when the component has a problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub related_objects: Option<Vec<RelatedObject>>,
    /// Further information that the component reports.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    #[schemars(schema_with = "schema::nullable_any_object")]
    pub extension: Nullable<Value>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The version of an operand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name", "version"]))]
pub struct OperandVersion {
    /// The name of the operand.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// An object that belongs to a component of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["group", "name", "resource"]))]
pub struct RelatedObject {
    /// The API group of the object.
    pub group: String,
    /// The resource: the plural of the kind, in lower case.
    pub resource: String,
    /// The namespace, if the object has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name; empty for all objects of the resource.
    pub name: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    ClusterOperator,
    schema::RootSchema::new::<ClusterOperatorSpec>()
        .status::<ClusterOperatorStatus>()
        .preserve_unknown_fields(),
);
