//! ControllerConfig: the cluster facts that the templates need.
//!
//! There is one, called `machine-config-controller`. The operator gathers it from the cluster's
//! objects (network, proxy, certificates, images), and the template controller renders the base
//! MachineConfigs of every pool from it. Administrators read it; they do not write it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::{self, Condition};
use super::config::{
    DNSSpec, DNSStatus, InfrastructureSpec, InfrastructureStatus, MTUMigration, ProxyStatus,
};
use super::embedded::Embedded;
use super::nullable::{Nullable, UnknownFields};
use super::schema;
use super::secret::SecretBytes;

/// The cluster facts that the templates need: network, proxy, certificates, images. Written by the
/// operator, read by the template controller; not meant to be edited.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "ControllerConfig",
    status = "ControllerConfigStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "What the templates need to know about the cluster.",
    label("openshift.io/operator-managed", "")
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = [
    "additionalTrustBundle",
    "baseOSContainerImage",
    "cloudProviderCAData",
    "cloudProviderConfig",
    "clusterDNSIP",
    "dns",
    "images",
    "infra",
    "ipFamilies",
    "kubeAPIServerServingCAData",
    "network",
    "proxy",
    "releaseImage",
    "rootCAData"
]))]
pub struct ControllerConfigSpec {
    /// The address of the cluster's DNS service.
    #[serde(rename = "clusterDNSIP", skip_serializing_if = "Option::is_none")]
    pub cluster_dns_ip: Option<String>,
    /// The configuration of the cloud provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_provider_config: Option<String>,
    /// The platform in lower case. Superseded by `infra`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Superseded by `infra`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_discovery_domain: Option<String>,
    /// The CA certificates that machines trust the API server with.
    #[serde(rename = "kubeAPIServerServingCAData", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    pub kube_api_server_serving_ca_data: Option<ByteString>,
    /// The CA certificates that machines trust the machine config server with.
    #[serde(rename = "rootCAData", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    pub root_ca_data: Option<ByteString>,
    /// The CA certificates that machines trust the cloud provider with.
    #[serde(rename = "cloudProviderCAData", skip_serializing_if = "Nullable::is_absent")]
    #[schemars(schema_with = "schema::nullable_bytes")]
    pub cloud_provider_ca_data: Nullable<ByteString>,
    /// Additional CA certificates that machines trust.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    #[schemars(schema_with = "schema::nullable_bytes")]
    pub additional_trust_bundle: Nullable<ByteString>,
    /// Certificates for image registries that administrators added.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_registry_bundle_user_data: Option<Vec<ImageRegistryBundle>>,
    /// Certificates for the cluster's own image registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_registry_bundle_data: Option<Vec<ImageRegistryBundle>>,
    /// The Secret that holds the cluster's pull secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_reference")]
    pub pull_secret: Option<ObjectReference>,
    /// The pull secret for the cluster's own image registry.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    #[schemars(schema_with = "schema::nullable_bytes")]
    pub internal_registry_pull_secret: Nullable<SecretBytes>,
    /// The images that the templates refer to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<BTreeMap<String, String>>,
    /// The BGP peers that announce the virtual IP addresses of the cluster, as JSON.
    #[serde(rename = "bgpVIPPeersJSON", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub bgp_vip_peers_json: Option<String>,
    /// The operating system image.
    #[serde(rename = "baseOSContainerImage", skip_serializing_if = "Option::is_none")]
    pub base_os_container_image: Option<String>,
    /// The image with the extensions of the operating system.
    #[serde(rename = "baseOSExtensionsContainerImage", skip_serializing_if = "Option::is_none")]
    pub base_os_extensions_container_image: Option<String>,
    /// The legacy operating system image; no longer used.
    #[serde(rename = "osImageURL", skip_serializing_if = "Option::is_none")]
    pub os_image_url: Option<String>,
    /// The release that the cluster is installed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_image: Option<String>,
    /// The proxy that machines use.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    pub proxy: Nullable<ProxyStatus>,
    /// The Infrastructure object of the cluster.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    #[schemars(schema_with = "schema::embedded_resource")]
    pub infra: Nullable<Embedded<InfrastructureSpec, InfrastructureStatus>>,
    /// The DNS object of the cluster.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    #[schemars(schema_with = "schema::embedded_resource")]
    pub dns: Nullable<Embedded<DNSSpec, DNSStatus>>,
    /// The address families: `IPv4`, `IPv6`, `DualStack` or `DualStackIPv6Primary`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_families: Option<String>,
    /// The network plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_type: Option<String>,
    /// Further facts about the network.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    pub network: Nullable<NetworkInfo>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A file of certificates for an image registry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["data", "file"]))]
pub struct ImageRegistryBundle {
    /// The name of the file: the registry's host name, with `..` instead of the colon before a
    /// port.
    pub file: String,
    /// The certificates.
    #[schemars(schema_with = "schema::bytes")]
    pub data: ByteString,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Facts about the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["mtuMigration"]))]
pub struct NetworkInfo {
    /// A change of the MTU that is in progress.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    pub mtu_migration: Nullable<MTUMigration>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The progress of the template controller, and the certificates that it distributes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerConfigStatus {
    /// The generation that this status was written for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `TemplateControllerRunning`, `TemplateControllerCompleted`, `TemplateControllerFailing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "condition::legacy_conditions_by_type")]
    pub conditions: Option<Vec<Condition>>,
    /// The certificates that the machines receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub controller_certificates: Option<Vec<ControllerCertificate>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A certificate that the machines receive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["bundleFile", "signer", "subject"]))]
pub struct ControllerCertificate {
    /// The subject.
    pub subject: String,
    /// The issuer.
    pub signer: String,
    /// The start of the validity period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// The end of the validity period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Time>,
    /// The bundle that contains it.
    pub bundle_file: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    ControllerConfig,
    schema::RootSchema::new::<ControllerConfigSpec>().status::<ControllerConfigStatus>(),
);
