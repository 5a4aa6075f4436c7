//! Infrastructure: where a cluster runs.
//!
//! The platform decides which templates apply, the topology how many machines may be updated at a
//! time, and the API addresses which server the machines connect to.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::nullable::UnknownFields;
use crate::api::schema;

/// Where the cluster runs: the platform, the topology of the control plane, the API addresses.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Infrastructure",
    status = "InfrastructureStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Where the cluster runs."
)]
#[serde(rename_all = "camelCase", default)]
pub struct InfrastructureSpec {
    /// The ConfigMap with the configuration of the cloud provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_config: Option<ConfigMapFileReference>,
    /// Settings of the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_spec: Option<PlatformSpec>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A key in a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConfigMapFileReference {
    /// The name of the ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The key in the ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Settings of the platform.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlatformSpec {
    /// The platform.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = PLATFORMS))]
    pub type_: Option<String>,
    /// Fields this version does not know; the settings of each platform are among them.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The infrastructure that was detected at installation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InfrastructureStatus {
    /// The name that marks everything that belongs to this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_name: Option<String>,
    /// The platform. Superseded by `platformStatus.type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = PLATFORMS))]
    pub platform: Option<String>,
    /// The platform and its details.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_status: Option<PlatformStatus>,
    /// The domain that etcd members were discovered by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_discovery_domain: Option<String>,
    /// The external address of the API server.
    #[serde(rename = "apiServerURL", skip_serializing_if = "Option::is_none")]
    pub api_server_url: Option<String>,
    /// The address of the API server for machines of the cluster.
    #[serde(rename = "apiServerInternalURI", skip_serializing_if = "Option::is_none")]
    pub api_server_internal_uri: Option<String>,
    /// The topology of the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "x-default" = "HighlyAvailable",
        "enum" = [
            "HighlyAvailable",
            "HighlyAvailableArbiter",
            "SingleReplica",
            "DualReplica",
            "External"
        ]
    ))]
    pub control_plane_topology: Option<String>,
    /// The topology of the machines that run the cluster's own services.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "x-default" = "HighlyAvailable",
        "enum" = ["HighlyAvailable", "SingleReplica"]
    ))]
    pub infrastructure_topology: Option<String>,
    /// Whether CPUs are reserved for system components.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "None", "enum" = ["None", "AllNodes"]))]
    pub cpu_partitioning: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The platform and its details.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlatformStatus {
    /// The platform.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = PLATFORMS))]
    pub type_: Option<String>,
    /// Details of Azure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzurePlatformStatus>,
    /// Details of bare metal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baremetal: Option<OnPremisePlatformStatus>,
    /// Details of vSphere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vsphere: Option<OnPremisePlatformStatus>,
    /// Details of OpenStack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openstack: Option<OnPremisePlatformStatus>,
    /// Details of Nutanix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nutanix: Option<OnPremisePlatformStatus>,
    /// Details of oVirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovirt: Option<OnPremisePlatformStatus>,
    /// Fields this version does not know; the other platforms are among them.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Details of Azure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AzurePlatformStatus {
    /// The Azure cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [
        "",
        "AzurePublicCloud",
        "AzureUSGovernmentCloud",
        "AzureChinaCloud",
        "AzureGermanCloud",
        "AzureStackCloud"
    ]))]
    pub cloud_name: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Details of a platform where the cluster provides its own virtual IP addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OnPremisePlatformStatus {
    /// The address of the API server. Superseded by `apiServerInternalIPs`.
    #[serde(rename = "apiServerInternalIP", skip_serializing_if = "Option::is_none")]
    pub api_server_internal_ip: Option<String>,
    /// The addresses of the API server.
    #[serde(rename = "apiServerInternalIPs", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::strings")]
    pub api_server_internal_ips: Option<Vec<String>>,
    /// The address of the ingress. Superseded by `ingressIPs`.
    #[serde(rename = "ingressIP", skip_serializing_if = "Option::is_none")]
    pub ingress_ip: Option<String>,
    /// The addresses of the ingress.
    #[serde(rename = "ingressIPs", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::strings")]
    pub ingress_ips: Option<Vec<String>>,
    /// Which load balancer serves the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<PlatformLoadBalancer>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Which load balancer serves the control plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlatformLoadBalancer {
    /// `OpenShiftManagedDefault` or `UserManaged`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "x-default" = "OpenShiftManagedDefault",
        "enum" = ["OpenShiftManagedDefault", "UserManaged"]
    ))]
    pub type_: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The platforms; an unset field reads as the empty one.
const PLATFORMS: [&str; 17] = [
    "",
    "AWS",
    "Azure",
    "BareMetal",
    "GCP",
    "Libvirt",
    "OpenStack",
    "None",
    "VSphere",
    "oVirt",
    "IBMCloud",
    "KubeVirt",
    "EquinixMetal",
    "PowerVS",
    "AlibabaCloud",
    "Nutanix",
    "External",
];

schema::kind_schema!(
    Infrastructure,
    schema::RootSchema::new::<InfrastructureSpec>()
        .status::<InfrastructureStatus>()
        .preserve_unknown_fields(),
);
