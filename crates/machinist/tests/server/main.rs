//! `machinist server bootstrap` from the outside, over real connections.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

mod access;
mod faults;
mod fixture;
mod responses;
mod running;
mod sealed;
