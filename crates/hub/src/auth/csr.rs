//! Signing requests: which are approved by themselves, which are signed, and the task that does it.
//!
//! A machine gets its first certificate with a bootstrap token, and renews it with the certificate
//! itself. Everything else waits for an administrator (`kubectl certificate approve`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::certificates::{Ca, Request};
use super::{BOOTSTRAPPERS, MACHINE_PREFIX, MACHINES};

/// The signer of the client certificates of machines.
pub const MACHINE_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The signer of all other client certificates.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// The longest that a signed certificate lasts, and what it lasts if nothing is asked for.
const MAX_SECONDS: i64 = 365 * 24 * 3600;
/// The shortest that may be asked for.
const MIN_SECONDS: i64 = 600;

/// What to do with a signing request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing: it is done, or somebody else's.
    Leave,
    /// Approve it, then sign it.
    ApproveAndSign,
    /// It was approved by an administrator: sign it.
    Sign,
    /// It can never be signed; the text says why.
    Fail(String),
}

/// Decides on a signing request.
#[must_use]
pub fn decide(csr: &Value) -> Step {
    let spec = &csr["spec"];
    let signer = spec["signerName"].as_str().unwrap_or_default();
    let done = csr["status"]["certificate"].as_str().is_some_and(|text| !text.is_empty());
    if done || !matches!(signer, MACHINE_SIGNER | CLIENT_SIGNER) {
        return Step::Leave;
    }
    let has = |wanted: &str| {
        let conditions = csr["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| one["type"] == wanted)
    };
    if has("Denied") || has("Failed") {
        return Step::Leave;
    }
    let approved = has("Approved");
    let request = match request(csr) {
        Ok(request) => request,
        Err(_) if !approved => return Step::Leave,
        Err(reason) => return Step::Fail(reason),
    };
    let fault = fault(spec, signer, &request);
    match (approved, fault) {
        (true, None) => Step::Sign,
        (true, Some(fault)) => Step::Fail(fault.to_owned()),
        (false, None) if signer == MACHINE_SIGNER && is_entitled(spec, &request.user) => {
            Step::ApproveAndSign
        }
        (false, _) => Step::Leave,
    }
}

/// The PKCS#10 request in the object.
///
/// # Errors
/// It cannot be read; the text says why.
pub fn request(csr: &Value) -> Result<Request, String> {
    let text = csr["spec"]["request"].as_str().unwrap_or_default();
    let pem = STANDARD.decode(text).map_err(|error| format!("spec.request: {error}"))?;
    let pem = String::from_utf8(pem).map_err(|_| "spec.request: not PEM".to_owned())?;
    Request::parse(&pem).map_err(|error| format!("spec.request: {error}"))
}

/// What the signer does not sign.
fn fault(spec: &Value, signer: &str, request: &Request) -> Option<&'static str> {
    let usages: Vec<&str> =
        spec["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let known =
        |usage: &&str| matches!(*usage, "digital signature" | "key encipherment" | "client auth");
    if !usages.contains(&"client auth") || !usages.iter().all(known) {
        return Some("usages must be client auth, digital signature and key encipherment only");
    }
    if request.wants_more {
        return Some("the request may not ask for alternative names or for a CA");
    }
    if request.groups.len() > 1 {
        return Some("the request may have one organization at most");
    }
    if request.user.is_empty() {
        return Some("the request has no common name");
    }
    if signer == MACHINE_SIGNER {
        let name = request.user.strip_prefix(MACHINE_PREFIX).unwrap_or_default();
        if name.is_empty() {
            return Some("the common name must be system:node:NAME");
        }
        if request.groups != [MACHINES] {
            return Some("the organization must be system:nodes");
        }
    } else if request.groups.iter().any(|group| group == super::ADMINS) {
        return Some("the organization system:masters is not signed for");
    }
    None
}

/// Whether the one who asked may have a machine's certificate without an administrator: a machine
/// that has none yet, or the machine itself.
fn is_entitled(spec: &Value, user: &str) -> bool {
    let groups: Vec<&str> =
        spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let itself = spec["username"] == user && groups.contains(&MACHINES);
    groups.contains(&BOOTSTRAPPERS) || itself
}

/// The object with its certificate, or with what went wrong.
#[must_use]
pub fn carry_out(step: &Step, csr: &Value, ca: &Ca, now: &str) -> Option<Value> {
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
        Step::Leave => return None,
        Step::Fail(reason) => {
            add("Failed", "SignerValidationFailure", reason);
            return Some(new);
        }
        Step::ApproveAndSign => {
            add("Approved", "AutoApproved", "a machine's client certificate");
        }
        Step::Sign => {}
    }
    let asked = csr["spec"]["expirationSeconds"].as_i64().unwrap_or(MAX_SECONDS);
    let seconds = asked.clamp(MIN_SECONDS, MAX_SECONDS);
    match request(csr).and_then(|found| ca.sign(&found, seconds).map_err(|e| e.to_string())) {
        Ok(pem) => new["status"]["certificate"] = STANDARD.encode(pem).into(),
        Err(reason) => add("Failed", "SigningError", &reason),
    }
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    fn csr(user: &str, group: &str, asker: &str, asker_group: &str) -> Value {
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
                "username": asker, "groups": [asker_group],
            },
            "status": {},
        })
    }

    #[test]
    fn which_are_approved() {
        let machine = "system:node:a";
        let table = [
            (machine, MACHINES, "system:bootstrap:x", BOOTSTRAPPERS, Step::ApproveAndSign),
            (machine, MACHINES, machine, MACHINES, Step::ApproveAndSign),
            (machine, MACHINES, "system:node:b", MACHINES, Step::Leave),
            (machine, MACHINES, "someone", "others", Step::Leave),
            (machine, "system:masters", "system:bootstrap:x", BOOTSTRAPPERS, Step::Leave),
            ("admin", MACHINES, "system:bootstrap:x", BOOTSTRAPPERS, Step::Leave),
            ("system:node:", MACHINES, "system:bootstrap:x", BOOTSTRAPPERS, Step::Leave),
        ];
        for (user, group, asker, asker_group, expected) in table {
            let found = decide(&csr(user, group, asker, asker_group));
            assert_eq!(found, expected, "{user} {group} asked by {asker}");
        }
    }

    #[test]
    fn an_approved_one_is_signed_and_left_alone_after() {
        let ca = Ca::load(&Ca::make("test").unwrap()).unwrap();
        let mut object = csr("system:node:a", MACHINES, "someone", "others");
        object["status"]["conditions"] = json!([{"type": "Approved"}]);
        assert_eq!(decide(&object), Step::Sign);
        let signed = carry_out(&Step::Sign, &object, &ca, "now").unwrap();
        assert!(signed["status"]["certificate"].as_str().unwrap().len() > 100);
        assert_eq!(decide(&signed), Step::Leave);
        object["spec"]["usages"] = json!(["server auth"]);
        assert!(matches!(decide(&object), Step::Fail(_)));
    }

    #[test]
    fn nobody_is_made_an_administrator() {
        let mut object = csr("root", "system:masters", "x", "y");
        object["spec"]["signerName"] = CLIENT_SIGNER.into();
        object["status"]["conditions"] = json!([{"type": "Approved"}]);
        assert!(matches!(decide(&object), Step::Fail(_)));
    }
}
