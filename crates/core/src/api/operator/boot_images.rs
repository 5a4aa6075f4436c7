//! Boot images: the images that new machines start from.
//!
//! They become outdated while a cluster is updated. These settings control whether they are
//! replaced, and what happens if they are too old.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::nullable::UnknownFields;
use crate::api::{rules, schema};

/// The machine resources whose boot images are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedBootImages {
    /// The resources that create machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 5),
        extend(
            "x-kubernetes-list-type" = "map",
            "x-kubernetes-list-map-keys" = ["resource", "apiGroup"]
        )
    )]
    pub machine_managers: Option<Vec<MachineManager>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A resource that creates machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["apiGroup", "resource", "selection"],
    "x-kubernetes-validations" = rules::control_plane_selection()
))]
pub struct MachineManager {
    /// `machinesets` or `controlplanemachinesets`.
    #[schemars(extend("enum" = ["machinesets", "controlplanemachinesets"]))]
    pub resource: String,
    /// `machine.openshift.io`.
    #[schemars(extend("enum" = ["machine.openshift.io"]))]
    pub api_group: String,
    /// The selected objects of the resource.
    pub selection: MachineManagerSelection,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The selected objects of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend(
    "required" = ["mode"],
    "x-kubernetes-validations" = rules::partial_selection()
))]
pub struct MachineManagerSelection {
    /// `All`, `Partial` or `None`.
    #[schemars(extend("enum" = ["All", "Partial", "None"]))]
    pub mode: String,
    /// The selection, if the mode is `Partial`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<PartialSelection>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Some objects of a resource, by their labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["machineResourceSelector"]))]
pub struct PartialSelection {
    /// The labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub machine_resource_selector: Option<LabelSelector>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// What happens if boot images are too old.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend(
    "required" = ["mode"],
    "x-kubernetes-validations" = [rules::mode_member("Manual", "manual")]
))]
pub struct BootImageSkewEnforcement {
    /// `Manual`: an administrator states how old they are; `None`: nothing is checked.
    #[schemars(extend("enum" = ["Manual", "None"]))]
    pub mode: String,
    /// How old they are, if the mode is `Manual`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<ManualBootImageVersion>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The version of the oldest boot image, as stated by an administrator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["mode"],
    "x-kubernetes-validations" = [
        rules::mode_member("OCPVersion", "ocpVersion"),
        rules::mode_member("RHCOSVersion", "rhcosVersion")
    ]
))]
pub struct ManualBootImageVersion {
    /// `OCPVersion` or `RHCOSVersion`: which of the two is stated.
    #[schemars(extend("enum" = ["OCPVersion", "RHCOSVersion"]))]
    pub mode: String,
    /// The cluster version that the image was released with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 5, max = 10),
        extend("x-kubernetes-validations" = rules::ocp_version())
    )]
    pub ocp_version: Option<String>,
    /// The version of the operating system in the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 14, max = 21),
        extend("x-kubernetes-validations" = rules::rhcos_version())
    )]
    pub rhcos_version: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The effective policy for outdated boot images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend(
    "required" = ["mode"],
    "x-kubernetes-validations" = [
        rules::mode_member("Automatic", "automatic"),
        rules::mode_member("Manual", "manual")
    ]
))]
pub struct BootImageSkewEnforcementStatus {
    /// `Automatic`: the operator replaces them and knows how old they are; `Manual`; `None`.
    #[schemars(extend("enum" = ["Automatic", "Manual", "None"]))]
    pub mode: String,
    /// How old they are, as detected by the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1))]
    pub automatic: Option<BootImageVersions>,
    /// How old they are, as stated by an administrator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<ManualBootImageVersion>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The version of the oldest boot image, as detected by the operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules::version_required()))]
pub struct BootImageVersions {
    /// The cluster version that the image was released with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 5, max = 10),
        extend("x-kubernetes-validations" = rules::ocp_version())
    )]
    pub ocp_version: Option<String>,
    /// The version of the operating system in the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 14, max = 21),
        extend("x-kubernetes-validations" = rules::rhcos_version())
    )]
    pub rhcos_version: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}
