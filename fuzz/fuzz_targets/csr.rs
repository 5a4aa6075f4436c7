//! Fuzzes `robustness::signing_request`, which documents the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| machinist_hub::robustness::signing_request(bytes));
