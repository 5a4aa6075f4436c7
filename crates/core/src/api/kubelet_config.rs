//! KubeletConfig: settings of a pool's kubelets.
//!
//! An administrator writes the settings that differ from the defaults. The kubelet controller
//! generates a MachineConfig from them for every selected pool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::{self, Condition};
use super::nullable::UnknownFields;
use super::schema;
use super::tls_profile::TLSSecurityProfile;

/// Settings of a pool's kubelets: limits, eviction, logging, TLS.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "KubeletConfig",
    status = "KubeletConfigStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "How the kubelets of a pool behave.",
    label("openshift.io/operator-managed", "")
)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletConfigSpec {
    /// Whether each machine calculates the resources to reserve for the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_sizing_reserved: Option<bool>,
    /// The log level of the kubelet, from 0 to 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub log_level: Option<i32>,
    /// The pools that this applies to, by their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub machine_config_pool_selector: Option<LabelSelector>,
    /// Fields of the upstream type `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub kubelet_config: Option<Value>,
    /// The TLS versions and ciphers that the kubelet accepts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_security_profile: Option<TLSSecurityProfile>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Whether the settings were applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletConfigStatus {
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
    KubeletConfig,
    schema::RootSchema::new::<KubeletConfigSpec>().status::<KubeletConfigStatus>(),
);
