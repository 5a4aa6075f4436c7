//! Network: the addresses and the network plugin of a cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::nullable::UnknownFields;
use crate::api::schema;

/// The addresses and the network plugin of the cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Network",
    plural = "networks",
    status = "NetworkStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "The addresses and the network plugin of the cluster."
)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkSpec {
    /// The desired network plugin, for example `OVNKubernetes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_type: Option<String>,
    /// The IP address ranges of services.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::strings")]
    pub service_network: Option<Vec<String>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The network in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkStatus {
    /// The network plugin in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_type: Option<String>,
    /// A network migration that is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<NetworkMigration>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A network migration that is in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkMigration {
    /// The network plugin that is being migrated to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_type: Option<String>,
    /// A change of the MTU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<MTUMigration>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A change of the MTU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MTUMigration {
    /// The change of the MTU inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<MTUMigrationValues>,
    /// The change of the MTU of the machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MTUMigrationValues>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// An MTU before and after a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MTUMigrationValues {
    /// The MTU before the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub from: Option<i32>,
    /// The MTU after the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub to: Option<i32>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    Network,
    schema::RootSchema::new::<NetworkSpec>().status::<NetworkStatus>().preserve_unknown_fields(),
);
