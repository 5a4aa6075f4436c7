//! Invariants of every sequence of patches. Called by the fuzz target `patch`, by its regression
//! corpus and by a property test.
//!
//! A sequence is text, one patch per line: its type and its JSON.
//!
//! ```text
//! json [{"op": "add", "path": "/spec/a", "value": 1}]
//! merge {"metadata": {"labels": {"a": "b"}}}
//! strategic {"metadata": {"finalizers": ["a.io/b"]}}
//! ```

use serde_json::{Value, json};

use crate::body;
use crate::object;
use crate::object_limits::{MAX_DEPTH, MAX_OBJECT_BYTES, encoded_bytes, measure};
use crate::patch::{self, PatchKind};

/// Applies each patch to the result of the ones before it. A patch that fails changes nothing.
///
/// # Panics
/// A result is too deep or too large, or it cannot be read back.
pub fn patch_sequence(bytes: &[u8]) {
    let mut document = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "a", "labels": {"a": "b"}, "finalizers": ["a.io/b"]},
        "spec": {"podCIDRs": ["10.0.0.0/24"]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let rules = patch::strategic_rules("", "Node");
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some(at) = line.iter().position(|byte| *byte == b' ') else { continue };
        let kind = match &line[..at] {
            b"json" => PatchKind::Json,
            b"merge" => PatchKind::Merge,
            b"strategic" => PatchKind::Strategic,
            _ => continue,
        };
        let Ok(sent) = body::decode_json(&line[at..]) else { continue };
        if let Ok(new) = patch::apply(kind, &document, &sent.value, rules) {
            check_patched(&new);
            document = new;
        }
    }
}

fn check_patched(new: &Value) {
    assert!(measure(new, MAX_DEPTH).is_ok(), "a patch nested an object too deep");
    assert!(encoded_bytes(new) <= MAX_OBJECT_BYTES, "a patch made an object too large");
    if new.is_object() {
        let stored = object::encode(new).unwrap_or_default();
        assert!(object::decode(&stored, 1).is_ok(), "a patched object cannot be read back");
    }
}
