//! TLS profiles: the TLS versions and ciphers that a server accepts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::nullable::{Nullable, UnknownFields};
use super::schema;

/// The key exchange groups.
const KEY_EXCHANGE_GROUPS: [&str; 7] = [
    "X25519",
    "secp256r1",
    "secp384r1",
    "secp521r1",
    "X25519MLKEM768",
    "SecP256r1MLKEM768",
    "SecP384r1MLKEM1024",
];

/// The TLS versions and ciphers that a server accepts: one of three predefined profiles, or a
/// custom one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TLSSecurityProfile {
    /// `Old`, `Intermediate`, `Modern` or `Custom`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Old", "Intermediate", "Modern", "Custom"]))]
    pub type_: Option<String>,
    /// Set when the type is `Old`; has no content.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    pub old: Nullable<PredefinedTLSProfile>,
    /// Set when the type is `Intermediate`; has no content.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    pub intermediate: Nullable<PredefinedTLSProfile>,
    /// Set when the type is `Modern`; has no content.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    pub modern: Nullable<PredefinedTLSProfile>,
    /// Set when the type is `Custom`.
    #[serde(skip_serializing_if = "Nullable::is_absent")]
    pub custom: Nullable<CustomTLSProfile>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A profile without settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PredefinedTLSProfile {
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A profile that an administrator defined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomTLSProfile {
    /// The ciphers that are offered, by their OpenSSL names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ciphers: Option<Vec<String>>,
    /// The key exchange groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 7),
        extend("x-kubernetes-list-type" = "set"),
        transform = schema::each_item(json!({"enum": KEY_EXCHANGE_GROUPS}))
    )]
    pub groups: Option<Vec<String>>,
    /// The minimum TLS version.
    #[serde(rename = "minTLSVersion", skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "enum" = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]
    ))]
    pub min_tls_version: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}
