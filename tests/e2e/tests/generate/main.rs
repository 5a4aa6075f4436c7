//! MachineConfigs that are generated from other kinds, on both API servers and with the real consumers.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod container_tools;
#[path = "../controller/fixture.rs"]
#[allow(dead_code, reason = "the tests of the controller use the rest")]
mod fixture;
mod late_crd;
mod scenarios;
