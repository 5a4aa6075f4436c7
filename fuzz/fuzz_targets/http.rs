//! Fuzzes `robustness::request_any`: what it must hold for any bytes is said there.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| machinist_hub::robustness::request_any(bytes));
