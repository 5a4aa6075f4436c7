//! MachineOSConfig: a custom operating system image.
//!
//! An administrator says which pool runs it, what is added to the base image, and where the result
//! is pushed. The builder builds a new image whenever the pool's configuration changes.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::{self, Condition};
use super::nullable::UnknownFields;
use super::reference::{NameReference, ResourceReference};
use super::{rules, schema};

/// A custom operating system image for a pool: what is added to the base image, and where the
/// result is pushed.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineOSConfig",
    status = "MachineOSConfigStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "An operating system image of one's own for a pool.",
    label("openshift.io/operator-managed", "")
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = [
    "imageBuilder",
    "machineConfigPool",
    "renderedImagePushSecret",
    "renderedImagePushSpec"
]))]
pub struct MachineOSConfigSpec {
    /// The pool that runs the image; this object has the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_config_pool: Option<NameReference>,
    /// How the image is built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_builder: Option<MachineOSImageBuilder>,
    /// The secret to pull the base image with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_image_pull_secret: Option<NameReference>,
    /// The secret to push the result with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rendered_image_push_secret: Option<NameReference>,
    /// Where the result is pushed: a repository and a tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 447),
        extend("x-kubernetes-validations" = rules::image_push_spec())
    )]
    pub rendered_image_push_spec: Option<String>,
    /// What is added to the base image, for each architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 0, max = 4),
        extend(
            "x-kubernetes-list-type" = "map",
            "x-kubernetes-list-map-keys" = ["containerfileArch"]
        )
    )]
    pub container_file: Option<Vec<MachineOSContainerfile>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// How an image is built.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["imageBuilderType"]))]
pub struct MachineOSImageBuilder {
    /// `Job`: by a job in the cluster.
    #[schemars(extend("enum" = ["Job"]))]
    pub image_builder_type: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// What is added to the base image of one architecture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["content"]))]
pub struct MachineOSContainerfile {
    /// The architecture; `NoArch` for all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "x-default" = "NoArch",
        "enum" = ["ARM64", "AMD64", "PPC64LE", "S390X", "NoArch"]
    ))]
    pub containerfile_arch: Option<String>,
    /// The lines of a Containerfile, starting from `FROM configs AS final`.
    #[schemars(length(max = 4096))]
    pub content: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The current image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineOSConfigStatus {
    /// The generation that this status was written for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        range(min = 0),
        extend("x-kubernetes-validations" = rules::generation())
    )]
    pub observed_generation: Option<i64>,
    /// The conditions of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::standard_conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// The image that the pool runs, by digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 447),
        extend("x-kubernetes-validations" = rules::image_by_digest())
    )]
    pub current_image_pull_spec: Option<String>,
    /// The build that produced the image.
    #[serde(rename = "machineOSBuild", skip_serializing_if = "Option::is_none")]
    pub machine_os_build: Option<ResourceReference>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    MachineOSConfig,
    schema::RootSchema::new::<MachineOSConfigSpec>()
        .status::<MachineOSConfigStatus>()
        .rules(rules::named_after_pool()),
);
