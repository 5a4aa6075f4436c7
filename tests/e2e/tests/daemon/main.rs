//! The daemon on real machines: joined to a hub, as their service, with real restarts.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may panic as tests do")]

mod certificates;
mod disk;
mod flows;
mod hosts;
mod kills;
mod pod;
mod rollout;
mod site;
