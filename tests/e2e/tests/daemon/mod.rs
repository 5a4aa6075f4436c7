//! The daemon on real machines: joined to a hub, running as a service, with real reboots.
mod certificates;
mod compression;
mod config_scenarios;
mod daemon_killed;
mod disk_cases;
pub(crate) mod fixture;
mod package_and_ostree_hosts;
mod pod;
mod rollout;
