//! Signature requirements in the format of `policy.json` (containers-policy.json(5)).

use k8s_openapi::ByteString;

use super::image_reference;
use super::policy_requirement::{
    FulcioIdentity, PkiIdentity, PolicyRequirement, SignedName, SigstoreSigned,
};
use crate::api::config::{
    ImagePolicyPkiRootOfTrust, ImageSigstoreVerificationPolicy, RootOfTrust, SignedIdentity,
};

/// Why a policy is invalid: field, message, remedy.
pub(super) type PolicyProblem = (String, String, &'static str);

/// The requirement of a policy.
pub(super) fn requirement(
    policy: &ImageSigstoreVerificationPolicy,
) -> Result<PolicyRequirement, PolicyProblem> {
    let mut signed = root(&policy.root_of_trust)?;
    if let Some(wanted) = &policy.signed_identity {
        signed.signed_identity = identity(wanted)?;
    }
    Ok(PolicyRequirement::SigstoreSigned(Box::new(signed)))
}

fn root(root: &RootOfTrust) -> Result<SigstoreSigned, PolicyProblem> {
    let mut signed = SigstoreSigned::default();
    match root.policy_type.as_str() {
        "PublicKey" => {
            let key = root.public_key.as_ref().ok_or_else(|| missing("publicKey"))?;
            signed.key_data = data(&key.key_data, "publicKey.keyData")?;
            signed.rekor_public_key_data = key.rekor_key_data.clone().unwrap_or_default();
        }
        "FulcioCAWithRekor" => {
            let name = "fulcioCAWithRekor";
            let fulcio = root.fulcio_ca_with_rekor.as_ref().ok_or_else(|| missing(name))?;
            let subject = &fulcio.fulcio_subject;
            let subject_field = |field: &str| format!("{name}.fulcioSubject.{field}");
            signed.fulcio = Some(FulcioIdentity {
                ca_path: String::new(),
                ca_data: data(&fulcio.fulcio_ca_data, &format!("{name}.fulcioCAData"))?,
                oidc_issuer: text(&subject.oidc_issuer, &subject_field("oidcIssuer"))?,
                subject_email: text(&subject.signed_email, &subject_field("signedEmail"))?,
            });
            let rekor = data(&fulcio.rekor_key_data, &format!("{name}.rekorKeyData"))?;
            signed.rekor_public_key_data = rekor;
        }
        "PKI" => {
            let pki = root.pki.as_ref().ok_or_else(|| missing("pki"))?;
            signed.pki = Some(certificates(pki)?);
        }
        other => {
            return Err((
                "rootOfTrust.policyType".to_owned(),
                format!("unknown policy type {other:?}"),
                "use PublicKey, FulcioCAWithRekor or PKI",
            ));
        }
    }
    Ok(signed)
}

fn certificates(pki: &ImagePolicyPkiRootOfTrust) -> Result<PkiIdentity, PolicyProblem> {
    let subject = &pki.pki_certificate_subject;
    let identity = PkiIdentity {
        ca_roots_data: data(&pki.ca_roots_data, "pki.caRootsData")?,
        ca_intermediates_data: pki.ca_intermediates_data.clone().unwrap_or_default(),
        subject_email: subject.email.clone().unwrap_or_default(),
        subject_hostname: subject.hostname.clone().unwrap_or_default(),
        ..PkiIdentity::default()
    };
    if identity.subject_email.is_empty() && identity.subject_hostname.is_empty() {
        return Err((
            "rootOfTrust.pki.pkiCertificateSubject".to_owned(),
            "nobody is named".to_owned(),
            "set email, hostname or both",
        ));
    }
    Ok(identity)
}

fn identity(identity: &SignedIdentity) -> Result<SignedName, PolicyProblem> {
    let field = |name: &str| format!("signedIdentity.{name}");
    let lacks = |name: &str| {
        (field(name), "it is missing".to_owned(), "set it, or choose another matchPolicy")
    };
    let repository = |value: &str, name: &str, hint| {
        if super::scope::is_mirror(value) {
            Ok(value.to_owned())
        } else {
            Err((field(name), format!("invalid repository {value:?}"), hint))
        }
    };
    let prefix = "write host[:port][/path] without a tag or digest";
    match identity.match_policy.as_str() {
        "MatchRepoDigestOrExact" => Ok(SignedName::MatchRepoDigestOrExact),
        "MatchRepository" => Ok(SignedName::MatchRepository {}),
        "ExactRepository" => {
            let exact = identity.exact_repository.as_ref();
            let exact = exact.ok_or_else(|| lacks("exactRepository"))?;
            let name = "exactRepository.repository";
            if image_reference::parse(&exact.repository)
                .is_none_or(|found| found.repository != exact.repository)
            {
                let message = format!("invalid repository {:?}", exact.repository);
                return Err((field(name), message, "write host/path without a tag or digest"));
            }
            Ok(SignedName::ExactRepository { docker_repository: exact.repository.clone() })
        }
        "RemapIdentity" => {
            let remap = identity.remap_identity.as_ref();
            let remap = remap.ok_or_else(|| lacks("remapIdentity"))?;
            let signed = &remap.signed_prefix;
            Ok(SignedName::RemapIdentity {
                prefix: repository(&remap.prefix, "remapIdentity.prefix", prefix)?,
                signed_prefix: repository(signed, "remapIdentity.signedPrefix", prefix)?,
            })
        }
        other => Err((
            field("matchPolicy"),
            format!("unknown signedIdentity match policy: {other}"),
            "use MatchRepoDigestOrExact, MatchRepository, ExactRepository or RemapIdentity",
        )),
    }
}

fn missing(name: &str) -> PolicyProblem {
    let field = format!("rootOfTrust.{name}");
    (field, "it is missing".to_owned(), "set what rootOfTrust.policyType asks for")
}

fn data(bytes: &ByteString, name: &str) -> Result<ByteString, PolicyProblem> {
    if bytes.0.is_empty() {
        return Err(missing(name));
    }
    Ok(bytes.clone())
}

fn text(text: &str, name: &str) -> Result<String, PolicyProblem> {
    if text.is_empty() {
        return Err(missing(name));
    }
    Ok(text.to_owned())
}
