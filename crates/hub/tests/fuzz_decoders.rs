//! The decoders of untrusted bytes keep their invariants: on their regression corpora, and on every truncation and many
//! mutations of them.
use machinist_hub::robustness::{protobuf_body, signing_request};
use proptest::prelude::*;
use std::fs;

/// The corpus of a fuzz target.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = format!("{}/../../tests/cases/fuzz/{target}", env!("CARGO_MANIFEST_DIR"));
    let files = fs::read_dir(&dir).unwrap();
    let files: Vec<_> = files.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(!files.is_empty(), "{dir} is empty");
    files
}

fn check_corpus(target: &str, check: fn(&[u8])) {
    for bytes in corpus(target) {
        for end in 0..=bytes.len() {
            check(&bytes[..end]);
        }
    }
}

#[test]
fn truncated_protobuf_bodies_keep_the_limits() {
    check_corpus("protobuf", protobuf_body);
}

#[test]
fn truncated_signing_requests_are_not_signed() {
    check_corpus("csr", signing_request);
}

/// An entry of a corpus with some bytes changed.
fn mutated(target: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8);
    (prop::sample::select(corpus(target)), changes).prop_map(|(mut bytes, changes)| {
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        bytes
    })
}

proptest! {
    #[test]
    fn mutated_protobuf_bodies_keep_the_limits(bytes in mutated("protobuf")) {
        protobuf_body(&bytes);
    }

    #[test]
    fn mutated_signing_requests_are_not_signed(bytes in mutated("csr")) {
        signing_request(&bytes);
    }
}
