//! Fuzzes `robustness::parse_any`, which documents the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| machinist_core::ignition::robustness::parse_any(bytes));
