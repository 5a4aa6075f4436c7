//! MachineConfigs that are made out of something easier to write, on both homes and with real readers.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod container_tools;
mod late_crd;
mod scenarios;
#[path = "../controller/site.rs"]
#[allow(dead_code, reason = "the tests of the controller use the rest")]
mod site;
