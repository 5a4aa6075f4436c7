//! Fuzzes `robustness::apply_sequence`, which documents the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| machinist_hub::robustness::apply_sequence(bytes));
