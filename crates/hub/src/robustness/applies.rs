//! Invariants of every sequence of writes by several managers. Called by the fuzz target `apply`, by its regression corpus
//! and by a test.
//!
//! A sequence is text, one write per line: its manager, its operation and its JSON.
//!
//! ```text
//! alice apply {"metadata": {"labels": {"a": "b"}}}
//! bob force {"spec": {"podCIDRs": ["10.0.0.0/24"]}}
//! carol update {"metadata": {"managedFields": []}}
//! ```

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::admission::Admission;
use crate::body;
use crate::built_in;
use crate::field_management::{FieldManagement, FieldWriter};
use crate::object;
use crate::object_limits::{MAX_STORED_DEPTH, measure};

/// Applies and updates an object. A write that fails changes nothing.
///
/// # Panics
/// The result cannot be stored, the same apply again changes it, or a manager owns nothing.
pub fn apply_sequence(bytes: &[u8]) {
    let kinds = built_in::kinds();
    let Some(kind) = kinds.iter().find(|kind| kind.kind == "Node") else { return };
    let (Ok(admission), Some(management)) = (Admission::new(kind), FieldManagement::new(kind))
    else {
        return;
    };
    let mut live: Option<Value> = None;
    for line in bytes.split(|byte| *byte == b'\n').take(50) {
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let (Some(manager), Some(operation), Some(text)) =
            (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (Ok(manager), Ok(sent)) = (std::str::from_utf8(manager), body::decode_json(text))
        else {
            continue;
        };
        let mut sent = sent.value;
        let Some(fields) = sent.as_object_mut() else { continue };
        fields.insert("apiVersion".to_owned(), json!("v1"));
        fields.insert("kind".to_owned(), json!("Node"));
        let writer = FieldWriter { manager, subresource: "", now: Timestamp::UNIX_EPOCH };
        let written = match operation {
            b"apply" | b"force" => {
                let force = operation == b"force";
                let Ok(applied) = management.apply(&writer, live.as_ref(), &sent, force) else {
                    continue;
                };
                if !sends_what_is_replaced(manager, &sent) {
                    let again = management.apply(&writer, Some(&applied), &sent, false);
                    assert_eq!(
                        again.as_ref(),
                        Ok(&applied),
                        "the same apply again changes something"
                    );
                }
                applied
            }
            _ => {
                if admission.prune(kind, &mut sent).is_err() {
                    continue;
                }
                management.track(&writer, live.as_ref(), &mut sent);
                sent
            }
        };
        check_written(&written);
        live = Some(written);
    }
}

/// As in Kubernetes, an apply of kubectl replaces the annotation with what was applied, whatever it sends there itself: to
/// send the same again is a change. The real kubectl does not send it.
fn sends_what_is_replaced(manager: &str, sent: &Value) -> bool {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    manager == "kubectl" && sent["metadata"]["annotations"].get(annotation).is_some()
}

fn check_written(object: &Value) {
    if measure(object, MAX_STORED_DEPTH).is_err() {
        return; // the router refuses it
    }
    let stored = object::encode(object).unwrap_or_default();
    assert!(object::decode(&stored, 1).is_ok(), "a written object cannot be read back");
    for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let fields = entry["fieldsV1"].as_object();
        assert!(fields.is_some_and(|fields| !fields.is_empty()), "a manager owns nothing: {entry}");
    }
}
