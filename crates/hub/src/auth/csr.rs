//! Decides which certificate signing requests (CSRs) are approved and signed.
//!
//! A machine gets its first certificate with a bootstrap token, within what the token is for, and renews it with that
//! certificate. A name that is in use needs an administrator, and so do all other CSRs: `kubectl certificate approve`.
//! Pure but for the signing; called by `crate::signer`.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::certificates::{CertificateAuthority, SigningRequest};
use super::machine::{self, APPROVAL_PENDING_ANNOTATION, CertificateGrant, ROLES_ANNOTATION};
use super::pool_names::refused_name;
use super::tokens::TokenRecord;
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
    ApproveAndSign(CertificateGrant),
    /// Sign it: an administrator approved it. A machine's certificate comes with a grant.
    Sign(Option<CertificateGrant>),
    /// Leave it to an administrator. The text says why, and what the administrator can do.
    Hold(String),
    /// Deny it: the token is not for this machine. The text says why.
    Deny(String),
    /// Mark it failed: it can never be signed. The text says why.
    Fail(String),
}

/// What a decision depends on besides the CSR.
#[derive(Debug, Default)]
pub struct CsrFacts<'a> {
    /// The bootstrap token that the request was made with; `None` if it expired or was revoked, or if the requester is
    /// somebody else.
    pub token: Option<&'a TokenRecord>,
    /// Whether the machine has a Node.
    pub node_exists: bool,
    /// Whether the machine has a certificate that has not expired and was not revoked.
    pub has_live_certificate: bool,
    /// The roles that the machine was given before.
    pub roles: BTreeSet<String>,
    /// The pools that take the machine by its name.
    pub pools_by_name: BTreeSet<String>,
    /// Whether the machine's certificates were revoked after it made the request.
    pub is_revoked_since: bool,
}

/// The machine that a CSR asks a certificate for, if it does.
#[must_use]
pub fn machine_name(csr: &Value) -> Option<String> {
    if csr["spec"]["signerName"] != MACHINE_SIGNER {
        return None;
    }
    let user = parse_request(csr).ok()?.user;
    user.strip_prefix(NODE_USER_PREFIX).map(str::to_owned)
}

/// Decides what to do with a CSR. `reserved` are names that no machine may have.
#[must_use]
pub fn decide(csr: &Value, facts: &CsrFacts<'_>, reserved: &BTreeSet<String>) -> CsrDecision {
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
    let fault = rejection_reason(spec, signer, &request, reserved);
    let requester = Requester::of(spec, &request.user);
    match (approved, fault) {
        (true, Some(fault)) => CsrDecision::Fail(fault),
        (true, None) if signer != MACHINE_SIGNER => CsrDecision::Sign(None),
        (true, None) => approved_grant(csr, requester, facts),
        // A machine that joins has to learn at once why its request goes nowhere.
        (false, Some(fault)) if signer == MACHINE_SIGNER && requester == Requester::Bootstrap => {
            CsrDecision::Deny(fault)
        }
        (false, None) if signer == MACHINE_SIGNER => {
            let name = request.user.strip_prefix(NODE_USER_PREFIX).unwrap_or_default();
            let decision = match requester {
                Requester::Bootstrap => decide_bootstrap(csr, name, facts),
                Requester::Machine if facts.is_revoked_since => CsrDecision::Deny(
                    "the certificate that the request was made with was revoked".to_owned(),
                ),
                Requester::Machine if facts.node_exists => {
                    CsrDecision::ApproveAndSign(CertificateGrant::Renewal)
                }
                Requester::Machine => CsrDecision::Hold(renewal_without_node(csr, name)),
                Requester::Other => CsrDecision::Ignore,
            };
            match decision {
                CsrDecision::Hold(reason) if pending_reason(csr) == reason => CsrDecision::Ignore,
                decision => decision,
            }
        }
        (false, _) => CsrDecision::Ignore,
    }
}

/// Who made a request for a machine's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Requester {
    /// The holder of a bootstrap token.
    Bootstrap,
    /// The machine itself, with its certificate.
    Machine,
    /// Anyone else.
    Other,
}

impl Requester {
    fn of(spec: &Value, user: &str) -> Self {
        let mut groups = spec["groups"].as_array().into_iter().flatten();
        if spec["username"] == user && groups.clone().any(|group| group == NODE_GROUP) {
            Self::Machine
        } else if groups.any(|group| group == BOOTSTRAP_GROUP) {
            Self::Bootstrap
        } else {
            Self::Other
        }
    }
}

/// The roles that a CSR asks for.
fn requested_roles(csr: &Value) -> Result<BTreeSet<String>, String> {
    machine::parse_roles(
        csr["metadata"]["annotations"][ROLES_ANNOTATION].as_str().unwrap_or_default(),
    )
}

fn pending_reason(csr: &Value) -> &str {
    csr["metadata"]["annotations"][APPROVAL_PENDING_ANNOTATION].as_str().unwrap_or_default()
}

/// An administrator saw what the request asks for, and approved it.
fn approved_grant(csr: &Value, requester: Requester, facts: &CsrFacts<'_>) -> CsrDecision {
    if requester == Requester::Machine && facts.is_revoked_since {
        return CsrDecision::Fail(
            "the certificate that the request was made with was revoked".to_owned(),
        );
    }
    if requester == Requester::Machine {
        return CsrDecision::Sign(Some(CertificateGrant::Renewal));
    }
    match requested_roles(csr) {
        Err(fault) => CsrDecision::Fail(fault),
        Ok(roles) if roles.is_empty() => {
            CsrDecision::Sign(Some(CertificateGrant::New(facts.roles.clone())))
        }
        Ok(roles) => CsrDecision::Sign(Some(CertificateGrant::New(roles))),
    }
}

fn decide_bootstrap(csr: &Value, name: &str, facts: &CsrFacts<'_>) -> CsrDecision {
    let Some(token) = facts.token else {
        return CsrDecision::Deny(
            "the token has expired or was revoked: create another with machinist hub token --role bootstrap"
                .to_owned(),
        );
    };
    let requested = match requested_roles(csr) {
        Ok(requested) => requested,
        Err(fault) => return CsrDecision::Deny(fault),
    };
    // Tokens of earlier versions are not bound to anything.
    let binding = token.bootstrap.clone().unwrap_or_default();
    let roles = match binding.admit(name, &requested) {
        Ok(roles) => roles,
        Err(fault) => return CsrDecision::Deny(fault),
    };
    if let Some(fault) = refused_name(&binding, name, &facts.pools_by_name) {
        return CsrDecision::Deny(fault);
    }
    let in_use = match (facts.node_exists, facts.has_live_certificate) {
        (false, false) => None,
        (true, _) => Some(format!("Node {name} exists already")),
        (false, true) => {
            Some(format!("a machine named {name} has a certificate that is still valid"))
        }
    };
    match in_use.filter(|_| binding.replaces.as_deref() != Some(name)) {
        Some(why) => CsrDecision::Hold(name_in_use(csr, name, &why)),
        None => CsrDecision::ApproveAndSign(CertificateGrant::New(roles)),
    }
}

fn name_in_use(csr: &Value, name: &str, why: &str) -> String {
    let request = csr["metadata"]["name"].as_str().unwrap_or_default();
    format!(
        "{why}. If this machine replaces it, create a token with \
         machinist hub token --role bootstrap --replace {name} and join with that, or run \
         kubectl certificate approve {request} while this request waits"
    )
}

fn renewal_without_node(csr: &Value, name: &str) -> String {
    let request = csr["metadata"]["name"].as_str().unwrap_or_default();
    format!(
        "a certificate is renewed only while Node {name} exists: restart the daemon to register it, or run \
         kubectl certificate approve {request}"
    )
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
fn rejection_reason(
    spec: &Value,
    signer: &str,
    request: &SigningRequest,
    reserved: &BTreeSet<String>,
) -> Option<String> {
    let fixed = |text: &str| Some(text.to_owned());
    let usages: Vec<&str> =
        spec["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let known =
        |usage: &&str| matches!(*usage, "digital signature" | "key encipherment" | "client auth");
    if !usages.contains(&"client auth") || !usages.iter().all(known) {
        return fixed("usages must be client auth, digital signature and key encipherment only");
    }
    if request.has_forbidden_extensions {
        return fixed("the request may not ask for alternative names or for a CA");
    }
    if request.groups.len() > 1 {
        return fixed("the request may have one organization at most");
    }
    if request.user.is_empty() {
        return fixed("the request has no common name");
    }
    if signer == MACHINE_SIGNER {
        let name = request.user.strip_prefix(NODE_USER_PREFIX).unwrap_or_default();
        if name.is_empty() {
            return fixed("the common name must be system:node:NAME");
        }
        if request.groups != [NODE_GROUP] {
            return fixed("the organization must be system:nodes");
        }
        return machine::name_fault(name, reserved);
    }
    // The other signer must not be a way around the checks of this one.
    if request.user.starts_with(NODE_USER_PREFIX)
        || request.groups.iter().any(|group| group == NODE_GROUP)
    {
        return fixed(
            "certificates of machines are signed by kubernetes.io/kube-apiserver-client-kubelet only",
        );
    }
    if request.groups.iter().any(|group| group == super::ADMIN_GROUP) {
        return fixed("the organization system:masters is not signed for");
    }
    None
}

/// Returns the CSR object with its certificate, its failure or what it waits for.
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
        CsrDecision::Hold(reason) => {
            if !new["metadata"]["annotations"].is_object() {
                new["metadata"]["annotations"] = json!({});
            }
            new["metadata"]["annotations"][APPROVAL_PENDING_ANNOTATION] = reason.as_str().into();
            return Some(new);
        }
        CsrDecision::Deny(reason) => {
            add("Denied", "NotAdmitted", reason);
            return Some(new);
        }
        CsrDecision::Fail(reason) => {
            add("Failed", "SignerValidationFailure", reason);
            return Some(new);
        }
        CsrDecision::ApproveAndSign(_) => {
            add("Approved", "AutoApproved", "a machine's client certificate");
        }
        CsrDecision::Sign(_) => {}
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
mod tests;
