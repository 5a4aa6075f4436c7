//! The requirements in `policy.json` (containers-policy.json(5)), with their fields in the order of
//! the structs of `containers/image`.
//!
//! Go writes the fields of a struct in the order of their declaration, and MCO writes `policy.json`
//! that way. A template's `policy.json` may contain every requirement; MCO's objects give only
//! [`SigstoreSigned`]. Made by `signature_requirement`; read and written by `policy_json`.

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};

/// What an image has to satisfy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum PolicyRequirement {
    /// Every image is accepted.
    InsecureAcceptAnything {},
    /// No image is accepted.
    Reject {},
    /// It is signed with a GPG key.
    #[serde(rename_all = "camelCase")]
    SignedBy {
        /// The kind of key.
        key_type: String,
        /// A file with keys.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        key_path: String,
        /// Files with keys.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        key_paths: Vec<String>,
        /// Keys.
        #[serde(default, skip_serializing_if = "is_empty")]
        key_data: ByteString,
        /// Whose name the signature carries.
        #[serde(default)]
        signed_identity: SignedName,
    },
    /// Its base layer is signed.
    #[serde(rename_all = "camelCase")]
    SignedBaseLayer {
        /// Whose name the signature of the base layer carries.
        base_layer_identity: SignedName,
    },
    /// It has a sigstore signature.
    SigstoreSigned(Box<SigstoreSigned>),
}

/// A sigstore signature: of a key, of an identity that Fulcio vouches for, or of a PKI's certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct SigstoreSigned {
    /// A file with the key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) key_path: String,
    /// Files with keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) key_paths: Vec<String>,
    /// The key.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) key_data: ByteString,
    /// Keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) key_datas: Vec<ByteString>,
    /// The identity that Fulcio vouches for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fulcio: Option<FulcioIdentity>,
    /// A file with the key of the transparency log.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) rekor_public_key_path: String,
    /// Files with keys of transparency logs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) rekor_public_key_paths: Vec<String>,
    /// The key of the transparency log.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) rekor_public_key_data: ByteString,
    /// Keys of transparency logs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) rekor_public_key_datas: Vec<ByteString>,
    /// The certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pki: Option<PkiIdentity>,
    /// Whose name the signature carries.
    pub(super) signed_identity: SignedName,
}

/// An identity that Fulcio vouches for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct FulcioIdentity {
    /// A file with the CA.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) ca_path: String,
    /// The CA.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) ca_data: ByteString,
    /// Who authenticated the signer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) oidc_issuer: String,
    /// The signer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subject_email: String,
}

/// A certificate of a PKI.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct PkiIdentity {
    /// A file with the roots.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) ca_roots_path: String,
    /// The roots.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) ca_roots_data: ByteString,
    /// A file with the intermediates.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) ca_intermediates_path: String,
    /// The intermediates.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) ca_intermediates_data: ByteString,
    /// The email address in the certificate.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subject_email: String,
    /// The host name in the certificate.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subject_hostname: String,
}

/// Whose name a signature carries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum SignedName {
    /// The image's.
    MatchExact {},
    /// The image's, or its repository's for an image by digest.
    #[default]
    MatchRepoDigestOrExact,
    /// The repository's, with any tag.
    MatchRepository {},
    /// This image's.
    #[serde(rename_all = "camelCase")]
    ExactReference {
        /// The image.
        docker_reference: String,
    },
    /// This repository's.
    #[serde(rename_all = "camelCase")]
    ExactRepository {
        /// The repository.
        docker_repository: String,
    },
    /// The image's, with another prefix.
    #[serde(rename_all = "camelCase")]
    RemapIdentity {
        /// The prefix of the image.
        prefix: String,
        /// The prefix in the signature.
        signed_prefix: String,
    },
}

fn is_empty(data: &ByteString) -> bool {
    data.0.is_empty()
}
