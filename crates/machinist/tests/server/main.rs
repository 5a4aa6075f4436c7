//! `machinist server bootstrap` from the outside, over real connections.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

mod access;
mod answers;
mod faults;
mod running;
mod sealed;
mod site;
