//! Virtual machines with their own kernel: how the daemon and staging behave when a real kernel boots, with real
//! arguments, and when the emulator is killed.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod daemon_scenario;
mod deploy_power_cuts;
mod fetch_power_cuts;
#[path = "../daemon/fixture.rs"]
#[allow(dead_code, reason = "shared with the tests of the daemon, which use more of it")]
mod hub;
mod power_cut_step;
mod vm;
