//! Decides which certificate signing requests (CSRs) are approved and signed.
//!
//! A machine gets its first certificate with a bootstrap token and renews it with that certificate.
//! All other CSRs wait for `kubectl certificate approve`. Pure but for the signing; called by
//! `crate::signer`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::certificates::{CertificateAuthority, SigningRequest};
use super::{BOOTSTRAP_GROUP, NODE_GROUP, NODE_USER_PREFIX};

/// Signer name of machine client certificates.
pub const MACHINE_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer name of all other client certificates.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Longest validity of a signed certificate, and the default.
const MAX_VALIDITY_SECONDS: i64 = 365 * 24 * 3600;
/// Shortest validity that can be requested.
const MIN_VALIDITY_SECONDS: i64 = 600;

/// What to do with a CSR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CsrDecision {
    /// Nothing: it is finished, or for another signer.
    Ignore,
    /// Approve it, then sign it.
    ApproveAndSign,
    /// Sign it: an administrator approved it.
    Sign,
    /// Mark it failed: it can never be signed. The text says why.
    Fail(String),
}

/// Decides what to do with a CSR.
#[must_use]
pub fn decide(csr: &Value) -> CsrDecision {
    let spec = &csr["spec"];
    let signer = spec["signerName"].as_str().unwrap_or_default();
    let done = csr["status"]["certificate"].as_str().is_some_and(|text| !text.is_empty());
    if done || !matches!(signer, MACHINE_SIGNER | CLIENT_SIGNER) {
        return CsrDecision::Ignore;
    }
    let has = |wanted: &str| {
        let conditions = csr["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| one["type"] == wanted)
    };
    if has("Denied") || has("Failed") {
        return CsrDecision::Ignore;
    }
    let approved = has("Approved");
    let request = match parse_request(csr) {
        Ok(request) => request,
        Err(_) if !approved => return CsrDecision::Ignore,
        Err(reason) => return CsrDecision::Fail(reason),
    };
    let fault = rejection_reason(spec, signer, &request);
    match (approved, fault) {
        (true, None) => CsrDecision::Sign,
        (true, Some(fault)) => CsrDecision::Fail(fault.to_owned()),
        (false, None) if signer == MACHINE_SIGNER && is_auto_approved(spec, &request.user) => {
            CsrDecision::ApproveAndSign
        }
        (false, _) => CsrDecision::Ignore,
    }
}

/// Parses the PKCS#10 request of a CSR object.
///
/// # Errors
/// It cannot be parsed; the text says why.
pub fn parse_request(csr: &Value) -> Result<SigningRequest, String> {
    let text = csr["spec"]["request"].as_str().unwrap_or_default();
    let pem = STANDARD.decode(text).map_err(|error| format!("spec.request: {error}"))?;
    let pem = String::from_utf8(pem).map_err(|_| "spec.request: not PEM".to_owned())?;
    SigningRequest::parse(&pem).map_err(|error| format!("spec.request: {error}"))
}

/// Returns why the signer refuses a request.
fn rejection_reason(spec: &Value, signer: &str, request: &SigningRequest) -> Option<&'static str> {
    let usages: Vec<&str> =
        spec["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let known =
        |usage: &&str| matches!(*usage, "digital signature" | "key encipherment" | "client auth");
    if !usages.contains(&"client auth") || !usages.iter().all(known) {
        return Some("usages must be client auth, digital signature and key encipherment only");
    }
    if request.has_forbidden_extensions {
        return Some("the request may not ask for alternative names or for a CA");
    }
    if request.groups.len() > 1 {
        return Some("the request may have one organization at most");
    }
    if request.user.is_empty() {
        return Some("the request has no common name");
    }
    if signer == MACHINE_SIGNER {
        let name = request.user.strip_prefix(NODE_USER_PREFIX).unwrap_or_default();
        if name.is_empty() {
            return Some("the common name must be system:node:NAME");
        }
        if request.groups != [NODE_GROUP] {
            return Some("the organization must be system:nodes");
        }
    } else if request.groups.iter().any(|group| group == super::ADMIN_GROUP) {
        return Some("the organization system:masters is not signed for");
    }
    None
}

/// Whether the requester gets a machine certificate without an administrator: a bootstrap user, or
/// the machine itself.
fn is_auto_approved(spec: &Value, user: &str) -> bool {
    let groups: Vec<&str> =
        spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let itself = spec["username"] == user && groups.contains(&NODE_GROUP);
    groups.contains(&BOOTSTRAP_GROUP) || itself
}

/// Returns the CSR object with its certificate or its failure.
#[must_use]
pub fn apply_decision(
    step: &CsrDecision,
    csr: &Value,
    ca: &CertificateAuthority,
    now: &str,
) -> Option<Value> {
    let mut new = csr.clone();
    let mut add = |kind: &str, reason: &str, message: &str| {
        let condition = json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastUpdateTime": now, "lastTransitionTime": now,
        });
        match new["status"]["conditions"].as_array_mut() {
            Some(list) => list.push(condition),
            None => new["status"]["conditions"] = json!([condition]),
        }
    };
    match step {
        CsrDecision::Ignore => return None,
        CsrDecision::Fail(reason) => {
            add("Failed", "SignerValidationFailure", reason);
            return Some(new);
        }
        CsrDecision::ApproveAndSign => {
            add("Approved", "AutoApproved", "a machine's client certificate");
        }
        CsrDecision::Sign => {}
    }
    let requested = csr["spec"]["expirationSeconds"].as_i64().unwrap_or(MAX_VALIDITY_SECONDS);
    let seconds = requested.clamp(MIN_VALIDITY_SECONDS, MAX_VALIDITY_SECONDS);
    match parse_request(csr)
        .and_then(|found| ca.sign_request(&found, seconds).map_err(|e| e.to_string()))
    {
        Ok(pem) => new["status"]["certificate"] = STANDARD.encode(pem).into(),
        Err(reason) => add("Failed", "SigningError", &reason),
    }
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    fn csr(user: &str, group: &str, requester: &str, requester_group: &str) -> Value {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let key = KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        json!({
            "metadata": {"name": "a"},
            "spec": {
                "request": STANDARD.encode(pem), "signerName": MACHINE_SIGNER,
                "usages": ["digital signature", "client auth"],
                "username": requester, "groups": [requester_group],
            },
            "status": {},
        })
    }

    #[test]
    fn automatic_approval() {
        let machine = "system:node:a";
        let table = [
            (
                machine,
                NODE_GROUP,
                "system:bootstrap:x",
                BOOTSTRAP_GROUP,
                CsrDecision::ApproveAndSign,
            ),
            (machine, NODE_GROUP, machine, NODE_GROUP, CsrDecision::ApproveAndSign),
            (machine, NODE_GROUP, "system:node:b", NODE_GROUP, CsrDecision::Ignore),
            (machine, NODE_GROUP, "someone", "others", CsrDecision::Ignore),
            (machine, "system:masters", "system:bootstrap:x", BOOTSTRAP_GROUP, CsrDecision::Ignore),
            ("admin", NODE_GROUP, "system:bootstrap:x", BOOTSTRAP_GROUP, CsrDecision::Ignore),
            (
                "system:node:",
                NODE_GROUP,
                "system:bootstrap:x",
                BOOTSTRAP_GROUP,
                CsrDecision::Ignore,
            ),
        ];
        for (user, group, requester, requester_group, expected) in table {
            let found = decide(&csr(user, group, requester, requester_group));
            assert_eq!(found, expected, "{user} {group} requested by {requester}");
        }
    }

    #[test]
    fn an_approved_request_is_signed_once() {
        let ca = CertificateAuthority::from_pem(&CertificateAuthority::generate("test").unwrap())
            .unwrap();
        let mut object = csr("system:node:a", NODE_GROUP, "someone", "others");
        object["status"]["conditions"] = json!([{"type": "Approved"}]);
        assert_eq!(decide(&object), CsrDecision::Sign);
        let signed = apply_decision(&CsrDecision::Sign, &object, &ca, "now").unwrap();
        assert!(signed["status"]["certificate"].as_str().unwrap().len() > 100);
        assert_eq!(decide(&signed), CsrDecision::Ignore);
        object["spec"]["usages"] = json!(["server auth"]);
        assert!(matches!(decide(&object), CsrDecision::Fail(_)));
    }

    #[test]
    fn the_admin_group_is_never_signed() {
        let mut object = csr("root", "system:masters", "x", "y");
        object["spec"]["signerName"] = CLIENT_SIGNER.into();
        object["status"]["conditions"] = json!([{"type": "Approved"}]);
        assert!(matches!(decide(&object), CsrDecision::Fail(_)));
    }
}
