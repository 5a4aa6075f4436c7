//! Fuzzes `robustness::patch_sequence`, which documents the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| machinist_hub::robustness::patch_sequence(bytes));
