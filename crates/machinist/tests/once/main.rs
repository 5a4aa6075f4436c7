//! `machinist once` from the outside: what it leaves in a root, whatever happens to it.
//!
//! These tests give files to other owners and so need root, as the daemon does.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests may panic")]

mod cases;
mod crash;
mod fixture;
mod hostile;
mod large;
mod rules;
