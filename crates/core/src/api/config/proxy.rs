//! Proxy: how a cluster reaches external networks.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigMapNameReference;
use crate::api::nullable::UnknownFields;
use crate::api::schema;

/// How the cluster reaches external networks: the proxies for HTTP and HTTPS, and the exceptions.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Proxy",
    plural = "proxies",
    status = "ProxyStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "How the cluster reaches the outside."
)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxySpec {
    /// The proxy for HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<String>,
    /// The proxy for HTTPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<String>,
    /// Hosts and networks that are reached without a proxy, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// URLs that must be reachable through the proxy before it is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness_endpoints: Option<Vec<String>>,
    /// The ConfigMap in `openshift-config` with the CA certificates of the proxy.
    #[serde(rename = "trustedCA", skip_serializing_if = "Option::is_none")]
    pub trusted_ca: Option<ConfigMapNameReference>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The proxy settings in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyStatus {
    /// The proxy for HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<String>,
    /// The proxy for HTTPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<String>,
    /// Hosts and networks that are reached without a proxy, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    Proxy,
    schema::RootSchema::new::<ProxySpec>().status::<ProxyStatus>().preserve_unknown_fields(),
);
