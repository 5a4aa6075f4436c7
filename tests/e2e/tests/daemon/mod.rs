//! The daemon on real machines: joined to a hub, running as a service, with real reboots.
mod certificates;
mod compression;
mod config_scenarios;
mod daemon_killed;
mod disk_cases;
pub(crate) mod fixture;
mod hub_away;
mod package_and_ostree_hosts;
mod pod;
mod rollout;
