//! APIServer: settings of a cluster's API server, most importantly its TLS profile.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::nullable::UnknownFields;
use crate::api::schema;
use crate::api::tls_profile::TLSSecurityProfile;

/// Settings of the cluster's API server. The TLS profile also applies to the kubelets.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "APIServer",
    status = "APIServerStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "Settings of the cluster's API server."
)]
#[serde(rename_all = "camelCase", default)]
pub struct APIServerSpec {
    /// The TLS versions and ciphers that the server accepts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_security_profile: Option<TLSSecurityProfile>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The status has no fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct APIServerStatus {
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

schema::kind_schema!(
    APIServer,
    schema::RootSchema::new::<APIServerSpec>()
        .status::<APIServerStatus>()
        .preserve_unknown_fields(),
);
