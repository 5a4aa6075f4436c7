//! Image: the registries that machines may use, and how they use them.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use serde_json::{Value, json};

use super::ConfigMapNameReference;
use crate::api::condition::{self, Condition};
use crate::api::nullable::UnknownFields;
use crate::api::rules::rule;
use crate::api::schema;

/// The registries that the cluster may use, and how: allowed, blocked and insecure registries, and
/// the certificates that they are trusted with.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Image",
    status = "ImageStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Which registries the cluster may use, and how."
)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageSpec {
    /// The registries that users may import images from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub allowed_registries_for_import: Option<Vec<RegistryLocation>>,
    /// The external host names of the cluster's own registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::strings")]
    pub external_registry_hostnames: Option<Vec<String>>,
    /// The ConfigMap in `openshift-config` with the CA certificates of registries.
    #[serde(rename = "additionalTrustedCA", skip_serializing_if = "Option::is_none")]
    pub additional_trusted_ca: Option<ConfigMapNameReference>,
    /// How machines treat registries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry_sources: Option<RegistrySources>,
    /// How image streams import images of several architectures.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["", "Legacy", "PreserveOriginal"]))]
    pub image_stream_import_mode: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A registry that users may import images from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RegistryLocation {
    /// The host, with a port unless it is the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    /// Whether its certificate is not verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure: Option<bool>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// How machines treat registries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "has(self.blockedRegistries) ? !has(self.allowedRegistries) : true",
    "Only one of blockedRegistries or allowedRegistries may be set"
)]))]
pub struct RegistrySources {
    /// Registries whose certificates are not verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 1024),
        extend("x-kubernetes-list-type" = "atomic"),
        transform = schema::each_item(registry())
    )]
    pub insecure_registries: Option<Vec<String>>,
    /// Registries that machines must not use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 1024),
        extend("x-kubernetes-list-type" = "atomic"),
        transform = schema::each_item(registry())
    )]
    pub blocked_registries: Option<Vec<String>>,
    /// The only registries that machines may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 1024),
        extend("x-kubernetes-list-type" = "atomic"),
        transform = schema::each_item(registry())
    )]
    pub allowed_registries: Option<Vec<String>>,
    /// The registries to search for short image names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1),
        extend("x-kubernetes-list-type" = "set", "format" = "hostname")
    )]
    pub container_runtime_search_registries: Option<Vec<String>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The schema of one registry in a list.
fn registry() -> Value {
    json!({
        "minLength": 1,
        "maxLength": 256,
        "x-kubernetes-validations": [rule(
            r"self.matches('^\\*(?:\\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+$|^((?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:(?:\\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+)?(?::[0-9]+)?)(?:(?:/[a-z0-9]+(?:(?:(?:[._]|__|[-]*)[a-z0-9]+)+)?)+)?$')",
            "each registry must be a valid hostname[:port][/path] or wildcard *.hostname format without tags or digests",
        )],
    })
}

/// The names of the cluster's own registry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageStatus {
    /// Whether the lists were applied: `Success` or `Failure`, newest last. OpenShift's definition
    /// of the kind drops this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::legacy_conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// The internal host name of the cluster's own registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_registry_hostname: Option<String>,
    /// The external host names of the cluster's own registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::strings")]
    pub external_registry_hostnames: Option<Vec<String>>,
    /// How image streams import images of several architectures.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["", "Legacy", "PreserveOriginal"]))]
    pub image_stream_import_mode: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    Image,
    schema::RootSchema::new::<ImageSpec>().status::<ImageStatus>().preserve_unknown_fields()
);
