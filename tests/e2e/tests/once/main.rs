//! `machinist once` against real faults (system calls that fail, power that is cut), and against
//! systemd's own word on what enabling a unit means.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod fixture;
mod power_cuts;
mod syscall_faults;
mod systemd;
