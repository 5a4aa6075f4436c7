//! `machinist bootstrap`: it predicts the names that the controller assigns later, and writes a directory that real
//! machines boot from.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod first_boot;
#[path = "../controller/fixture.rs"]
#[allow(dead_code, reason = "the tests of the controller use the rest")]
mod fixture;
mod inputs;
mod names;
#[path = "../server/support.rs"]
#[allow(dead_code, reason = "the tests of the server use the rest")]
mod support;
