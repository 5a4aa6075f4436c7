//! Invariants of the decoders of untrusted bytes: protobuf bodies and certificate signing requests. Called by the fuzz
//! targets `protobuf` and `csr`, and by their regression corpora.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::auth::csr::{self, CsrDecision, CsrFacts, MACHINE_SIGNER};
use crate::auth::{BOOTSTRAP_GROUP, NODE_GROUP};
use crate::body;
use crate::object;
use crate::object_limits::{MAX_DEPTH, measure};

/// Decodes any bytes as a protobuf body.
///
/// # Panics
/// The object is too deep, or it cannot be stored and read back.
pub fn protobuf_body(bytes: &[u8]) {
    let Ok(decoded) = body::decode(Some("application/vnd.kubernetes.protobuf"), bytes) else {
        return;
    };
    assert!(measure(&decoded.value, MAX_DEPTH).is_ok(), "a body is too deep");
    let stored = object::encode(&decoded.value).unwrap_or_default();
    assert!(object::decode(&stored, 1).is_ok(), "a body cannot be read back");
}

/// Decides about any bytes as the PKCS#10 request of a CSR, by a bootstrap token that does not exist and by a machine
/// without a Node.
///
/// # Panics
/// It would be signed without anyone's approval.
pub fn signing_request(bytes: &[u8]) {
    let pem = format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        STANDARD.encode(bytes)
    );
    for (user, group) in [("system:bootstrap:x", BOOTSTRAP_GROUP), ("system:node:a", NODE_GROUP)] {
        let csr = json!({"metadata": {"name": "a"}, "spec": {
            "signerName": MACHINE_SIGNER, "request": STANDARD.encode(&pem),
            "usages": ["digital signature", "client auth"], "username": user, "groups": [group],
        }});
        let decision = csr::decide(&csr, &CsrFacts::default(), &BTreeSet::new());
        let is_signed = matches!(decision, CsrDecision::ApproveAndSign(_) | CsrDecision::Sign(_));
        assert!(!is_signed, "signed without approval: {decision:?}");
    }
}
