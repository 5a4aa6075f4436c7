//! Machinist's functional core.
//!
//! Every decision Machinist takes is a pure function in this crate: values in, values out. There
//! is no async code, no client, no clock, no environment, no file and no process here; the shell
//! (`crates/machinist`) reads the world, calls these functions and carries out what they return.

pub mod api;
pub mod ignition;
pub mod render;
