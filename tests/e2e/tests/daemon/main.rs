//! The daemon on real machines: joined to a hub, running as a service, with real reboots.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod certificates;
mod config_scenarios;
mod daemon_killed;
mod disk_cases;
mod fixture;
mod package_and_ostree_hosts;
mod pod;
mod rollout;
