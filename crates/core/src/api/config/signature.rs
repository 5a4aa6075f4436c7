//! What is asked of the signature of an image.

use k8s_openapi::ByteString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::signature_rules as rules;
use crate::api::nullable::UnknownFields;
use crate::api::schema;

/// What is asked of the signature of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["rootOfTrust"]))]
pub struct ImageSigstoreVerificationPolicy {
    /// Who must have signed.
    pub root_of_trust: RootOfTrust,
    /// Which image the signature must name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_identity: Option<SignedIdentity>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Who must have signed.
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
    /// The owner of a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<PublicKey>,
    /// Somebody whose identity Fulcio vouches for.
    #[serde(rename = "fulcioCAWithRekor", skip_serializing_if = "Option::is_none")]
    pub fulcio_ca_with_rekor: Option<FulcioCAWithRekor>,
    /// Somebody with a certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pki: Option<ImagePolicyPkiRootOfTrust>,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// The owner of a key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["keyData"]))]
pub struct PublicKey {
    /// The key, as PEM.
    #[schemars(
        schema_with = "schema::bytes",
        length(min = 68, max = 8192),
        extend("x-kubernetes-validations" = rules::pem("keyData", "PUBLIC KEY"))
    )]
    pub key_data: ByteString,
    /// The key of the transparency log, as PEM.
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

/// Somebody whose identity Fulcio vouches for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["fulcioCAData", "fulcioSubject", "rekorKeyData"]))]
pub struct FulcioCAWithRekor {
    /// The certificate of Fulcio, as PEM.
    #[serde(rename = "fulcioCAData")]
    #[schemars(
        schema_with = "schema::bytes",
        length(max = 8192),
        extend("x-kubernetes-validations" = rules::pem("fulcioCAData", "CERTIFICATE"))
    )]
    pub fulcio_ca_data: ByteString,
    /// The key of the transparency log, as PEM.
    #[schemars(
        schema_with = "schema::bytes",
        length(max = 8192),
        extend("x-kubernetes-validations" = rules::pem("rekorKeyData", "PUBLIC KEY"))
    )]
    pub rekor_key_data: ByteString,
    /// Who.
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
    /// Who gave out the identity.
    #[schemars(
        length(max = 2048),
        extend("x-kubernetes-validations" = rules::issuer())
    )]
    pub oidc_issuer: String,
    /// The mail address in the identity.
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

/// Somebody with a certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["caRootsData", "pkiCertificateSubject"]))]
pub struct ImagePolicyPkiRootOfTrust {
    /// The certificates at the root, as PEM.
    #[schemars(
        schema_with = "schema::bytes",
        length(min = 72, max = 8192),
        extend("x-kubernetes-validations" = rules::certificates("caRootsData"))
    )]
    pub ca_roots_data: ByteString,
    /// The certificates between root and signer, as PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        schema_with = "schema::bytes",
        length(min = 72, max = 8192),
        extend("x-kubernetes-validations" = rules::certificates("caIntermediatesData"))
    )]
    pub ca_intermediates_data: Option<ByteString>,
    /// Who.
    pub pki_certificate_subject: PkiCertificateSubject,
    /// Fields this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: UnknownFields,
}

/// Whom a certificate names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-kubernetes-validations" = rules::certificate_subject()))]
pub struct PkiCertificateSubject {
    /// The mail address.
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

/// Which image a signature must name.
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
    /// The repository it must name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact_repository: Option<ExactRepository>,
    /// The part of the name that it has differently.
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

/// The part of an image's name that its signature has differently.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["prefix", "signedPrefix"]))]
pub struct RemapIdentity {
    /// How the name of the image begins.
    #[schemars(
        length(max = 512),
        extend("x-kubernetes-validations" = rules::repository())
    )]
    pub prefix: String,
    /// How the name in the signature begins.
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
