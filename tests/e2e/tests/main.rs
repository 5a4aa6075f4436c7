//! All whole-machine tests in one binary: linking one takes a fraction of the time of linking many.
//! `run-tests` starts a process of its own for each test.

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

mod admin_commands;
mod binary;
mod bootstrap;
mod cluster;
mod conformance;
mod controller;
mod crds;
mod daemon;
mod daemon_benchmarks;
mod demo;
mod docs_book;
mod drain;
mod first_boot;
mod first_steps;
mod first_week;
mod fleet;
mod generate;
mod go_informer;
mod hub_backup;
mod hub_crash;
mod hub_faults;
mod hub_floods;
mod hub_hostile;
mod hub_support;
mod ignition;
mod install;
mod interference;
mod kit_cleanup;
mod kubectl_parity;
mod kubelet;
mod kubernetes_nodes;
mod machine_lifecycle;
mod metrics_access;
mod monitoring;
mod must_gather;
mod once;
mod os_image;
mod ostree;
mod packages;
mod pin_image;
mod power_cuts;
mod qemu;
mod registry;
mod rollout_scale;
mod server;
mod systemd;
mod upgrade;
mod user_data;
mod watchdog;
