//! Operating systems of machines with ostree: images from a registry, kernel arguments, and what goes wrong with them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may panic as tests do")]

mod crash;
mod fetching;
mod guarded;
#[path = "../daemon/site.rs"]
#[allow(dead_code, reason = "shared with the tests of the daemon, which use more of it")]
mod hub;
mod interrupted;
mod pool;
mod refusals;
mod site;
mod staging;
mod story;
