//! The regression corpus of the fuzz target `manifest`, with every truncation and many mutations of it.
use machinist::manifests::{ManifestText, parse};
use proptest::prelude::*;
use serde_json::Value;
use std::fs;

#[path = "../../../fuzz/manifest_invariants.rs"]
mod manifest_invariants;

fn read(file: &str, text: &str) -> Result<Vec<Value>, String> {
    let text = ManifestText { file: file.into(), text: text.to_owned() };
    let documents = parse(&text).map_err(|error| format!("{error:#}"))?;
    Ok(documents.into_iter().map(|document| document.value).collect())
}

fn corpus() -> Vec<Vec<u8>> {
    let directory = format!("{}/../../tests/cases/fuzz/manifest", env!("CARGO_MANIFEST_DIR"));
    let files = fs::read_dir(&directory).unwrap();
    let files: Vec<_> = files.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(!files.is_empty(), "{directory} is empty");
    files
}

#[test]
fn truncated_manifests_are_read_or_refused() {
    for bytes in corpus() {
        let step = (bytes.len() / 200).max(1);
        for end in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
            manifest_invariants::check(&bytes[..end], read);
        }
    }
}

/// An entry of the corpus with some bytes changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8);
    (prop::sample::select(corpus()), changes).prop_map(|(mut bytes, changes)| {
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        bytes
    })
}

proptest! {
    #[test]
    fn mutated_manifests_are_read_or_refused(bytes in mutated()) {
        manifest_invariants::check(&bytes, read);
    }
}
