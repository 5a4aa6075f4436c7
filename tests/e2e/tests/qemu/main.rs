//! Virtual machines with a kernel of their own: what the daemon and its staging are worth when a real kernel boots, with
//! real arguments, and when the emulator is killed.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may panic as tests do")]

mod deploying;
mod fetching;
#[path = "../daemon/site.rs"]
#[allow(dead_code, reason = "shared with the tests of the daemon, which use more of it")]
mod hub;
mod step;
mod story;
mod vm;
