//! ContainerRuntimeConfig: how the container runtime of a pool behaves.
//!
//! An administrator writes the settings that differ from the default; the runtime controller
//! makes a MachineConfig of them for every pool that is selected.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::{self, Condition};
use super::nullable::UnknownFields;
use super::quantity::Quantity;
use super::{rules, schema};

/// How the container runtime (CRI-O) of a pool behaves: limits, logging, storage.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "ContainerRuntimeConfig",
    shortname = "ctrcfg",
    status = "ContainerRuntimeConfigStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "How the container runtime of a pool behaves.",
    label("openshift.io/operator-managed", "")
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["containerRuntimeConfig"]))]
pub struct ContainerRuntimeConfigSpec {
    /// Which pools this is for, by their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub machine_config_pool_selector: Option<LabelSelector>,
    /// The settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_runtime_config: Option<ContainerRuntimeConfiguration>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Settings of the container runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRuntimeConfiguration {
    /// How many processes a container may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<i64>,
    /// How much the runtime logs: `fatal`, `panic`, `error`, `warn`, `info`, `debug`, `trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
    /// How large the log of a container may become.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub log_size_max: Option<Quantity>,
    /// How large a container's own file system may become.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub overlay_size: Option<Quantity>,
    /// What starts the containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["crun", "runc"]))]
    pub default_runtime: Option<String>,
    /// Further places that image layers are looked for in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 5),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = rules::unique_paths("additionalLayerStores")
        )
    )]
    pub additional_layer_stores: Option<Vec<AdditionalStore>>,
    /// Further places that images are looked for in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 10),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = rules::unique_paths("additionalImageStores")
        )
    )]
    pub additional_image_stores: Option<Vec<AdditionalStore>>,
    /// Further places that artifacts are looked for in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 10),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = rules::unique_paths("additionalArtifactStores")
        )
    )]
    pub additional_artifact_stores: Option<Vec<AdditionalStore>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A place on the machine that holds layers, images or artifacts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["path"]))]
pub struct AdditionalStore {
    /// The folder.
    #[schemars(
        length(min = 1, max = 256),
        extend("x-kubernetes-validations" = rules::absolute_path())
    )]
    pub path: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Whether the settings were taken up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRuntimeConfigStatus {
    /// The generation that this status was written for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Success` or `Failure`, newest last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::legacy_conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    ContainerRuntimeConfig,
    schema::RootSchema::new::<ContainerRuntimeConfigSpec>()
        .status::<ContainerRuntimeConfigStatus>(),
);
