//! `machinist once` against real faults (failing system calls, power cuts), and against systemd's own implementation of
//! enabling units.
pub(crate) mod fixture;
mod power_cuts;
mod syscall_faults;
mod systemd;
