//! `machinist bootstrap`: the names that the controller gives later, and a folder that real machines start from.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod first_boot;
mod inputs;
mod names;
#[path = "../controller/site.rs"]
#[allow(dead_code, reason = "the tests of the controller use the rest")]
mod site;
#[path = "../server/support.rs"]
#[allow(dead_code, reason = "the tests of the server use the rest")]
mod support;
