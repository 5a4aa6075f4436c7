//! Fuzzes `robustness::request_any`, which documents the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| machinist_hub::robustness::request_any(bytes));
