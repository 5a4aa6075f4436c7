//! ContainerRuntimeConfig: settings of a pool's container runtime.
//!
//! An administrator writes the settings that differ from the defaults. The container runtime
//! controller generates a MachineConfig from them for every selected pool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::{self, Condition};
use super::nullable::UnknownFields;
use super::quantity::Quantity;
use super::{rules, schema};

/// Settings of a pool's container runtime (CRI-O): limits, logging, storage.
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
    /// The pools that this applies to, by their labels.
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
    /// The maximum number of processes in a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<i64>,
    /// The log level: `fatal`, `panic`, `error`, `warn`, `info`, `debug`, `trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
    /// The maximum size of a container's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub log_size_max: Option<Quantity>,
    /// The maximum size of a container's root file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub overlay_size: Option<Quantity>,
    /// The OCI runtime that starts the containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["crun", "runc"]))]
    pub default_runtime: Option<String>,
    /// Additional directories with image layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 5),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = rules::unique_paths("additionalLayerStores")
        )
    )]
    pub additional_layer_stores: Option<Vec<AdditionalStore>>,
    /// Additional directories with images.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 10),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = rules::unique_paths("additionalImageStores")
        )
    )]
    pub additional_image_stores: Option<Vec<AdditionalStore>>,
    /// Additional directories with artifacts.
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

/// A directory on the machine that holds layers, images or artifacts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["path"]))]
pub struct AdditionalStore {
    /// The path of the directory.
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

/// Whether the settings were applied.
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
