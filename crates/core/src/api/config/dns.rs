//! DNS: the base domain of a cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::nullable::UnknownFields;
use crate::api::schema;

/// The base domain of the cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "DNS",
    plural = "dnses",
    status = "DNSStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "The domain that the cluster's names end in."
)]
#[serde(rename_all = "camelCase", default)]
pub struct DNSSpec {
    /// The base domain; all names of the cluster are below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_domain: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The status of the domain. Machinist reads nothing from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DNSStatus {
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    DNS,
    schema::RootSchema::new::<DNSSpec>().status::<DNSStatus>().preserve_unknown_fields(),
);
