//! Fuzzes the module that reads manifests; `manifest_invariants` documents what holds.
#![no_main]

#[path = "../manifest_invariants.rs"]
mod manifest_invariants;
#[allow(dead_code, reason = "only the parser is called")]
#[path = "../../crates/machinist/src/manifests/mod.rs"]
mod manifests;

fn read(file: &str, text: &str) -> Result<Vec<serde_json::Value>, String> {
    let text = manifests::ManifestText { file: file.into(), text: text.to_owned() };
    let documents = manifests::parse(&text).map_err(|error| format!("{error:#}"))?;
    Ok(documents.into_iter().map(|document| document.value).collect())
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| manifest_invariants::check(bytes, read));
