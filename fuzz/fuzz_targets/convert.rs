//! Fuzzes `robustness::convert_any`, which documents the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| machinist_core::ignition::robustness::convert_any(bytes));
