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
#![allow(
    clippy::disallowed_methods,
    reason = "the ban on processes and the environment is for the core, not for its tests"
)]

mod api_crds;
mod api_round_trip;
mod bootstrap_as_controller;
mod cases;
mod cases_kubelet;
mod cases_policies;
mod cases_registries;
mod cases_templates;
mod container_runtime;
mod fuzz_corpus;
mod oracle_certificates;
mod oracle_containers;
mod oracle_ignition;
mod oracle_kubelet;
mod oracle_policies;
mod oracle_runtime_settings;
mod oracle_templates;
mod oracle_yaml;
mod pool_status;
mod properties;
mod render_base;
mod render_reconcile;
mod rollout_policy_properties;
mod rollout_properties;
mod serve;
mod support;
mod templates;
