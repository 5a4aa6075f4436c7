//! MachineOSBuild: one run of building an operating system image.
//!
//! The builder creates one for each combination of a MachineOSConfig and a rendered config. It
//! shows the progress of the build and where its logs are.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::{self, Condition};
use super::nullable::UnknownFields;
use super::reference::{self, NameReference, ResourceReference};
use super::{rules, schema};

/// One run of building an operating system image. Created by the builder; immutable.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::duplicated_attributes, reason = "columns are alike in type and priority")]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineOSBuild",
    status = "MachineOSBuildStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "One run of building an operating system image.",
    label("openshift.io/operator-managed", ""),
    printcolumn(
        name = "Prepared",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Prepared")].status"#
    ),
    printcolumn(
        name = "Building",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Building")].status"#
    ),
    printcolumn(
        name = "Succeeded",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Succeeded")].status"#
    ),
    printcolumn(
        name = "Interrupted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Interrupted")].status"#
    ),
    printcolumn(
        name = "Failed",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Failed")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["machineConfig", "machineOSConfig", "renderedImagePushSpec"],
    "x-kubernetes-validations" = rules::immutable("machineOSBuildSpec")
))]
pub struct MachineOSBuildSpec {
    /// The rendered config to build into the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NameReference", transform = reference::name_at_least(10))]
    pub machine_config: Option<NameReference>,
    /// The MachineOSConfig that requested the image.
    #[serde(rename = "machineOSConfig", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NameReference", transform = reference::name_at_least(1))]
    pub machine_os_config: Option<NameReference>,
    /// Where the image is pushed: a repository and a tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 447),
        extend("x-kubernetes-validations" = rules::image_push_spec())
    )]
    pub rendered_image_push_spec: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The progress of a build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules::build_times()))]
pub struct MachineOSBuildStatus {
    /// The conditions of the build; final once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        schema_with = "condition::standard_conditions",
        length(max = 8),
        extend("x-kubernetes-validations" = rules::final_build_conditions())
    )]
    pub conditions: Option<Vec<Condition>>,
    /// The builder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub builder: Option<MachineOSBuilderReference>,
    /// The objects that were created for the build: the pod, the secrets, the Containerfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 10),
        extend(
            "x-kubernetes-list-type" = "map",
            "x-kubernetes-list-map-keys" = ["name", "resource"]
        )
    )]
    pub related_objects: Option<Vec<ResourceReference>>,
    /// When the build started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = rules::immutable("buildStart")))]
    pub build_start: Option<Time>,
    /// When the build ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = rules::immutable("buildEnd")))]
    pub build_end: Option<Time>,
    /// The image that was built, by digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 447),
        extend("x-kubernetes-validations" = rules::image_by_digest())
    )]
    pub digested_image_push_spec: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The builder of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["imageBuilderType"],
    "x-kubernetes-validations" = rules::builder_job()
))]
pub struct MachineOSBuilderReference {
    /// `Job`: a job in the cluster.
    pub image_builder_type: String,
    /// The job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<ResourceReference>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    MachineOSBuild,
    schema::RootSchema::new::<MachineOSBuildSpec>().status::<MachineOSBuildStatus>(),
);
