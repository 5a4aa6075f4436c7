//! All integration tests of the crate in one binary: linking one takes a fraction of the time of linking many.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests may panic and print"
)]
#![allow(clippy::needless_pass_by_value, reason = "tests read better without borrows")]
#![allow(unreachable_pub, reason = "a module of a test binary is not reachable from outside")]

mod access;
mod answers;
mod backup;
mod bootstrap;
mod cli;
mod daemon;
mod deploy;
mod deploy_availability;
mod deploy_order;
mod docs;
mod durable_writes;
mod enrolment;
mod firstboot;
mod fuzz_manifests;
mod generate;
mod generate_templates;
mod join_crash;
mod join_errors;
mod kubernetes;
mod layers;
mod machine_names;
mod make_up;
mod once;
mod server;
mod service;
mod up;
