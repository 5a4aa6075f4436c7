//! Operating systems of machines with ostree: images from a registry, kernel arguments, and failures.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod crash;
mod fetching;
mod fixture;
#[path = "../daemon/fixture.rs"]
#[allow(dead_code, reason = "shared with the tests of the daemon, which use more of it")]
mod hub;
mod pool;
mod pool_scenario;
mod private_registry;
mod rejections;
mod resumed_download;
mod staging;
