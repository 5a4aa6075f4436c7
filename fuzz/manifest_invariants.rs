//! What holds for any bytes that are read as a manifest. Called by the fuzz target `manifest` and, for its regression
//! corpus, by `crates/machinist/tests/fuzz_manifests.rs`: the target compiles the module that reads manifests without the
//! rest of its crate.

use machinist_core::api::{MachineConfigPool, MachineConfigSpec};
use machinist_core::validate::validate_spec;
use serde_json::Value;

/// What reads the text of a file of this name.
pub type ReadManifest = fn(&str, &str) -> Result<Vec<Value>, String>;

/// Reading never panics, what was read can be written and read again, and neither can a check of it panic.
///
/// # Panics
/// One of these does not hold.
pub fn check(bytes: &[u8], read: ReadManifest) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for file in ["a.yaml", "a.json"] {
        let Ok(objects) = read(file, text) else { continue };
        for object in &objects {
            assert!(object.is_object(), "not an object: {object}");
            let written = object.to_string();
            match read("again.json", &written) {
                Ok(again) => assert!(again.iter().all(Value::is_object), "{written}"),
                // A list within a list is flattened in the second pass, and may be malformed.
                Err(error) => assert!(!error.contains("not valid JSON"), "{error}: {written}"),
            }
            check_spec(&object["spec"]);
        }
    }
}

fn check_spec(spec: &Value) {
    if let Ok(spec) = serde_json::from_value::<MachineConfigSpec>(spec.clone()) {
        let _ = validate_spec(&spec);
    }
    let pool = serde_json::json!({"metadata": {"name": "a"}, "spec": spec});
    if let Ok(pool) = serde_json::from_value::<MachineConfigPool>(pool) {
        let _ = serde_json::to_value(&pool);
    }
}
