//! `machinist once` from the outside: the state of the root directory after success, failure and crash.
//!
//! These tests change the owners of files, so they need root.
mod cases;
mod crash;
pub(crate) mod fixture;
mod hostile;
mod large;
mod obstacles;
mod rules;
