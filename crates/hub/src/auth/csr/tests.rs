//! Tests of `csr`: tables of inputs and what must come out.

use super::*;
use crate::auth::tokens::{BootstrapBinding, HubTokenRole, generate};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

const BOOTSTRAP: (&str, &str) = ("system:bootstrap:x", BOOTSTRAP_GROUP);

fn csr(user: &str, group: &str, requester: (&str, &str)) -> Value {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    params.distinguished_name.push(DnType::OrganizationName, group);
    let key = KeyPair::generate().unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    json!({
        "metadata": {"name": "csr-1"},
        "spec": {
            "request": STANDARD.encode(pem), "signerName": MACHINE_SIGNER,
            "usages": ["digital signature", "client auth"],
            "username": requester.0, "groups": [requester.1],
        },
        "status": {},
    })
}

fn token(bootstrap: Option<BootstrapBinding>) -> TokenRecord {
    TokenRecord { bootstrap, ..generate(HubTokenRole::Bootstrap, None, [1; 32]).record }
}

fn roles(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn worker_token() -> TokenRecord {
    token(Some(BootstrapBinding { pools: roles(&["worker"]), ..BootstrapBinding::default() }))
}

/// The decision in one word, for tables.
fn word(decision: &CsrDecision) -> &'static str {
    match decision {
        CsrDecision::Ignore => "ignore",
        CsrDecision::ApproveAndSign(CertificateGrant::New(_)) => "new",
        CsrDecision::ApproveAndSign(CertificateGrant::Renewal) => "renew",
        CsrDecision::Sign(_) => "sign",
        CsrDecision::Hold(_) => "hold",
        CsrDecision::Deny(_) => "deny",
        CsrDecision::Fail(_) => "fail",
    }
}

#[test]
fn automatic_approval() {
    let machine = ("system:node:a", NODE_GROUP);
    let token = worker_token();
    let replacing = token_replacing("a");
    let reserved = roles(&["machine-config-controller"]);
    // user, organization, requester, token, Node exists, live certificate
    let table = [
        ("system:node:a", NODE_GROUP, BOOTSTRAP, Some(&token), false, false, "new"),
        ("system:node:a", NODE_GROUP, BOOTSTRAP, None, false, false, "deny"),
        ("system:node:a", NODE_GROUP, BOOTSTRAP, Some(&token), true, false, "hold"),
        ("system:node:a", NODE_GROUP, BOOTSTRAP, Some(&token), false, true, "hold"),
        ("system:node:a", NODE_GROUP, BOOTSTRAP, Some(&replacing), true, true, "new"),
        ("system:node:b", NODE_GROUP, BOOTSTRAP, Some(&replacing), false, false, "deny"),
        ("system:node:a", NODE_GROUP, machine, None, true, true, "renew"),
        ("system:node:a", NODE_GROUP, machine, None, false, true, "hold"),
        ("system:node:a", NODE_GROUP, ("system:node:b", NODE_GROUP), None, true, true, "ignore"),
        ("system:node:a", NODE_GROUP, ("someone", "others"), None, false, false, "ignore"),
        ("system:node:a", "system:masters", BOOTSTRAP, Some(&token), false, false, "deny"),
        ("admin", NODE_GROUP, BOOTSTRAP, Some(&token), false, false, "deny"),
        ("system:node:", NODE_GROUP, BOOTSTRAP, Some(&token), false, false, "deny"),
        ("system:node:A", NODE_GROUP, BOOTSTRAP, Some(&token), false, false, "deny"),
        ("system:node:a/b", NODE_GROUP, BOOTSTRAP, Some(&token), false, false, "deny"),
        (
            "system:node:machine-config-controller",
            NODE_GROUP,
            BOOTSTRAP,
            Some(&token),
            false,
            false,
            "deny",
        ),
    ];
    for (user, group, requester, token, node_exists, has_live_certificate, expected) in table {
        let facts = CsrFacts { token, node_exists, has_live_certificate, ..CsrFacts::default() };
        let found = decide(&csr(user, group, requester), &facts, &reserved);
        assert_eq!(word(&found), expected, "{user} {group} by {requester:?}: {found:?}");
    }
}

fn token_replacing(name: &str) -> TokenRecord {
    let binding = BootstrapBinding {
        pools: roles(&["worker"]),
        replaces: Some(name.to_owned()),
        ..BootstrapBinding::default()
    };
    token(Some(binding))
}

#[test]
fn roles_come_from_the_token() {
    let (worker, old) = (worker_token(), token(None));
    let table = [
        (&worker, "", "new", Some(roles(&["worker"]))),
        (&worker, "worker", "new", Some(roles(&["worker"]))),
        (&worker, "master", "deny", None),
        (&worker, "worker,master", "deny", None),
        (&worker, "a/b", "deny", None),
        (&old, "master", "new", Some(roles(&["master"]))),
        (&old, "", "new", Some(roles(&[]))),
    ];
    for (token, requested, expected, granted) in table {
        let mut object = csr("system:node:a", NODE_GROUP, BOOTSTRAP);
        object["metadata"]["annotations"] = json!({ROLES_ANNOTATION: requested});
        let facts = CsrFacts { token: Some(token), ..CsrFacts::default() };
        let found = decide(&object, &facts, &BTreeSet::new());
        assert_eq!(word(&found), expected, "{requested}: {found:?}");
        if let CsrDecision::ApproveAndSign(CertificateGrant::New(roles)) = found {
            assert_eq!(Some(roles), granted, "{requested}");
        }
    }
}

#[test]
fn a_name_that_another_pool_takes_is_denied() {
    let token = worker_token();
    let object = csr("system:node:a", NODE_GROUP, BOOTSTRAP);
    for (pools, expected) in [(&["worker"][..], "new"), (&["edge"], "deny"), (&[], "new")] {
        let facts =
            CsrFacts { token: Some(&token), pools_by_name: roles(pools), ..CsrFacts::default() };
        let found = decide(&object, &facts, &BTreeSet::new());
        assert_eq!(word(&found), expected, "{pools:?}: {found:?}");
    }
}

#[test]
fn a_request_for_a_name_in_use_says_what_to_do_and_is_written_once() {
    let ca =
        CertificateAuthority::from_pem(&CertificateAuthority::generate("test").unwrap()).unwrap();
    let token = worker_token();
    let facts = CsrFacts { token: Some(&token), node_exists: true, ..CsrFacts::default() };
    let object = csr("system:node:a", NODE_GROUP, BOOTSTRAP);
    let held = decide(&object, &facts, &BTreeSet::new());
    let written = apply_decision(&held, &object, &ca, "now").unwrap();
    let reason = pending_reason(&written);
    for part in ["Node a exists", "--replace a", "kubectl certificate approve csr-1"] {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(decide(&written, &facts, &BTreeSet::new()), CsrDecision::Ignore);
}

#[test]
fn an_approved_request_is_signed_once() {
    let ca =
        CertificateAuthority::from_pem(&CertificateAuthority::generate("test").unwrap()).unwrap();
    let (facts, none) = (CsrFacts::default(), BTreeSet::new());
    let mut object = csr("system:node:a", NODE_GROUP, ("someone", "others"));
    object["status"]["conditions"] = json!([{"type": "Approved"}]);
    object["metadata"]["annotations"] = json!({ROLES_ANNOTATION: "infra"});
    let decision = decide(&object, &facts, &none);
    assert_eq!(decision, CsrDecision::Sign(Some(CertificateGrant::New(roles(&["infra"])))));
    let signed = apply_decision(&decision, &object, &ca, "now").unwrap();
    assert!(signed["status"]["certificate"].as_str().unwrap().len() > 100);
    assert_eq!(decide(&signed, &facts, &none), CsrDecision::Ignore);
    object["spec"]["usages"] = json!(["server auth"]);
    assert!(matches!(decide(&object, &facts, &none), CsrDecision::Fail(_)));
}

#[test]
fn the_other_signer_signs_neither_administrators_nor_machines() {
    for (user, group) in
        [("root", "system:masters"), ("system:node:a", "others"), ("someone", NODE_GROUP)]
    {
        let mut object = csr(user, group, ("x", "y"));
        object["spec"]["signerName"] = CLIENT_SIGNER.into();
        object["status"]["conditions"] = json!([{"type": "Approved"}]);
        let found = decide(&object, &CsrFacts::default(), &BTreeSet::new());
        assert!(matches!(found, CsrDecision::Fail(_)), "{user}: {found:?}");
    }
}
