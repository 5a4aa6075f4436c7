//! Virtual machines with their own kernel: how the daemon and staging behave when a real kernel boots, with real
//! arguments, and when the emulator is killed.

mod daemon_scenario;
mod deploy_power_cuts;
mod fetch_power_cuts;
mod power_cut_step;
mod vm;
