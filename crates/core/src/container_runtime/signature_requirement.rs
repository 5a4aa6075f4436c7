//! Signature requirements in the format of `policy.json` (containers-policy.json(5)).

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

use super::image_reference;
use crate::api::config::{
    ImagePolicyPkiRootOfTrust, ImageSigstoreVerificationPolicy, RootOfTrust, SignedIdentity,
};

/// Why a policy is invalid: field, message, remedy.
pub(super) type PolicyProblem = (String, String, &'static str);

/// The requirement of a policy.
pub(super) fn requirement(
    policy: &ImageSigstoreVerificationPolicy,
) -> Result<Value, PolicyProblem> {
    let mut requirement = root(&policy.root_of_trust)?;
    requirement.insert("type".to_owned(), json!("sigstoreSigned"));
    let identity = policy
        .signed_identity
        .as_ref()
        .map_or_else(|| Ok(json!({"type": "matchRepoDigestOrExact"})), identity)?;
    requirement.insert("signedIdentity".to_owned(), identity);
    Ok(Value::Object(requirement))
}

fn root(root: &RootOfTrust) -> Result<Map<String, Value>, PolicyProblem> {
    let mut fields = Map::new();
    match root.policy_type.as_str() {
        "PublicKey" => {
            let key = root.public_key.as_ref().ok_or_else(|| missing("publicKey"))?;
            fields.insert("keyData".to_owned(), data(&key.key_data, "publicKey.keyData")?);
            if let Some(rekor) = key.rekor_key_data.as_ref().filter(|data| !data.0.is_empty()) {
                fields.insert("rekorPublicKeyData".to_owned(), json!(rekor));
            }
        }
        "FulcioCAWithRekor" => {
            let name = "fulcioCAWithRekor";
            let fulcio = root.fulcio_ca_with_rekor.as_ref().ok_or_else(|| missing(name))?;
            let subject = &fulcio.fulcio_subject;
            let subject_field = |field: &str| format!("{name}.fulcioSubject.{field}");
            fields.insert(
                "fulcio".to_owned(),
                json!({
                    "caData": data(&fulcio.fulcio_ca_data, &format!("{name}.fulcioCAData"))?,
                    "oidcIssuer": text(&subject.oidc_issuer, &subject_field("oidcIssuer"))?,
                    "subjectEmail": text(&subject.signed_email, &subject_field("signedEmail"))?,
                }),
            );
            let rekor = data(&fulcio.rekor_key_data, &format!("{name}.rekorKeyData"))?;
            fields.insert("rekorPublicKeyData".to_owned(), rekor);
        }
        "PKI" => {
            let pki = root.pki.as_ref().ok_or_else(|| missing("pki"))?;
            fields.insert("pki".to_owned(), Value::Object(certificates(pki)?));
        }
        other => {
            return Err((
                "rootOfTrust.policyType".to_owned(),
                format!("unknown policy type {other:?}"),
                "use PublicKey, FulcioCAWithRekor or PKI",
            ));
        }
    }
    Ok(fields)
}

fn certificates(pki: &ImagePolicyPkiRootOfTrust) -> Result<Map<String, Value>, PolicyProblem> {
    let mut fields = Map::new();
    fields.insert("caRootsData".to_owned(), data(&pki.ca_roots_data, "pki.caRootsData")?);
    if let Some(between) = pki.ca_intermediates_data.as_ref().filter(|data| !data.0.is_empty()) {
        fields.insert("caIntermediatesData".to_owned(), json!(between));
    }
    let subject = &pki.pki_certificate_subject;
    let named = [("subjectEmail", &subject.email), ("subjectHostname", &subject.hostname)];
    for (name, value) in named {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            fields.insert(name.to_owned(), json!(value));
        }
    }
    if !fields.keys().any(|name| name.starts_with("subject")) {
        return Err((
            "rootOfTrust.pki.pkiCertificateSubject".to_owned(),
            "nobody is named".to_owned(),
            "set email, hostname or both",
        ));
    }
    Ok(fields)
}

fn identity(identity: &SignedIdentity) -> Result<Value, PolicyProblem> {
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
        "MatchRepoDigestOrExact" => Ok(json!({"type": "matchRepoDigestOrExact"})),
        "MatchRepository" => Ok(json!({"type": "matchRepository"})),
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
            Ok(json!({"type": "exactRepository", "dockerRepository": exact.repository}))
        }
        "RemapIdentity" => {
            let remap = identity.remap_identity.as_ref();
            let remap = remap.ok_or_else(|| lacks("remapIdentity"))?;
            Ok(json!({
                "type": "remapIdentity",
                "prefix": repository(&remap.prefix, "remapIdentity.prefix", prefix)?,
                "signedPrefix":
                    repository(&remap.signed_prefix, "remapIdentity.signedPrefix", prefix)?,
            }))
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

fn data(bytes: &ByteString, name: &str) -> Result<Value, PolicyProblem> {
    if bytes.0.is_empty() {
        return Err(missing(name));
    }
    Ok(json!(bytes))
}

fn text(text: &str, name: &str) -> Result<Value, PolicyProblem> {
    if text.is_empty() {
        return Err(missing(name));
    }
    Ok(json!(text))
}
