//! Fuzzes `robustness::protobuf_body`, which documents the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| machinist_hub::robustness::protobuf_body(bytes));
