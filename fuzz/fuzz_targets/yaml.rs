//! Fuzzes `robustness::yaml_any`: what it must hold for any bytes is said there.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| machinist_core::ignition::robustness::yaml_any(bytes));
