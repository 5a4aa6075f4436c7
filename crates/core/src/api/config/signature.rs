//! The signature that an image must carry.

use k8s_openapi::ByteString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::signature_rules as rules;
use crate::api::nullable::UnknownFields;
use crate::api::schema;

/// The signature that an image must carry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["rootOfTrust"]))]
pub struct ImageSigstoreVerificationPolicy {
    /// Who must have signed the image.
    pub root_of_trust: RootOfTrust,
    /// The image name that the signature must contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_identity: Option<SignedIdentity>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Who must have signed the image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["policyType"],
    "x-kubernetes-validations" = rules::root_of_trust()
))]
pub struct RootOfTrust {
    /// `PublicKey`, `FulcioCAWithRekor` or `PKI`.
    #[schemars(extend("enum" = ["PublicKey", "FulcioCAWithRekor", "PKI"]))]
    pub policy_type: String,
    /// The owner of a public key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<PublicKey>,
    /// An identity that Fulcio vouches for.
    #[serde(rename = "fulcioCAWithRekor", skip_serializing_if = "Option::is_none")]
    pub fulcio_ca_with_rekor: Option<FulcioCAWithRekor>,
    /// The owner of a certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pki: Option<ImagePolicyPkiRootOfTrust>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The owner of a public key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["keyData"]))]
pub struct PublicKey {
    /// The public key, as PEM.
    #[schemars(
        schema_with = "schema::bytes",
        length(min = 68, max = 8192),
        extend("x-kubernetes-validations" = rules::pem("keyData", "PUBLIC KEY"))
    )]
    pub key_data: ByteString,
    /// The public key of the transparency log, as PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        schema_with = "schema::bytes",
        length(max = 8192),
        extend("x-kubernetes-validations" = rules::pem("rekorKeyData", "PUBLIC KEY"))
    )]
    pub rekor_key_data: Option<ByteString>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// An identity that Fulcio vouches for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["fulcioCAData", "fulcioSubject", "rekorKeyData"]))]
pub struct FulcioCAWithRekor {
    /// The CA certificate of Fulcio, as PEM.
    #[serde(rename = "fulcioCAData")]
    #[schemars(
        schema_with = "schema::bytes",
        length(max = 8192),
        extend("x-kubernetes-validations" = rules::pem("fulcioCAData", "CERTIFICATE"))
    )]
    pub fulcio_ca_data: ByteString,
    /// The public key of the transparency log, as PEM.
    #[schemars(
        schema_with = "schema::bytes",
        length(max = 8192),
        extend("x-kubernetes-validations" = rules::pem("rekorKeyData", "PUBLIC KEY"))
    )]
    pub rekor_key_data: ByteString,
    /// The identity.
    pub fulcio_subject: FulcioSubject,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// A person or service that Fulcio vouches for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["oidcIssuer", "signedEmail"]))]
pub struct FulcioSubject {
    /// The OIDC issuer of the identity.
    #[schemars(
        length(max = 2048),
        extend("x-kubernetes-validations" = rules::issuer())
    )]
    pub oidc_issuer: String,
    /// The email address of the identity.
    #[schemars(
        length(max = 320),
        extend("x-kubernetes-validations" = rules::email())
    )]
    pub signed_email: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The owner of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["caRootsData", "pkiCertificateSubject"]))]
pub struct ImagePolicyPkiRootOfTrust {
    /// The root CA certificates, as PEM.
    #[schemars(
        schema_with = "schema::bytes",
        length(min = 72, max = 8192),
        extend("x-kubernetes-validations" = rules::certificates("caRootsData"))
    )]
    pub ca_roots_data: ByteString,
    /// The intermediate CA certificates, as PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        schema_with = "schema::bytes",
        length(min = 72, max = 8192),
        extend("x-kubernetes-validations" = rules::certificates("caIntermediatesData"))
    )]
    pub ca_intermediates_data: Option<ByteString>,
    /// The identity in the certificate.
    pub pki_certificate_subject: PkiCertificateSubject,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The identity in a certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-kubernetes-validations" = rules::certificate_subject()))]
pub struct PkiCertificateSubject {
    /// The email address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 320),
        extend("x-kubernetes-validations" = rules::email())
    )]
    pub email: Option<String>,
    /// The host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 253),
        extend("x-kubernetes-validations" = rules::hostname())
    )]
    pub hostname: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The image name that a signature must contain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["matchPolicy"],
    "x-kubernetes-validations" = rules::signed_identity()
))]
pub struct SignedIdentity {
    /// `MatchRepoDigestOrExact`, `MatchRepository`, `ExactRepository` or `RemapIdentity`.
    #[schemars(extend("enum" = [
        "MatchRepoDigestOrExact",
        "MatchRepository",
        "ExactRepository",
        "RemapIdentity"
    ]))]
    pub match_policy: String,
    /// The repository that the signature must name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact_repository: Option<ExactRepository>,
    /// The prefix that differs between the image name and the signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remap_identity: Option<RemapIdentity>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The repository that a signature must name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["repository"]))]
pub struct ExactRepository {
    /// The repository.
    #[schemars(
        length(max = 512),
        extend("x-kubernetes-validations" = rules::repository())
    )]
    pub repository: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The prefix that differs between the image name and the signature.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["prefix", "signedPrefix"]))]
pub struct RemapIdentity {
    /// The prefix of the image name.
    #[schemars(
        length(max = 512),
        extend("x-kubernetes-validations" = rules::repository())
    )]
    pub prefix: String,
    /// The prefix in the signature.
    #[schemars(
        length(max = 512),
        extend("x-kubernetes-validations" = rules::repository())
    )]
    pub signed_prefix: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}
