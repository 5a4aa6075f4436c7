//! Templates for the comparison with Go: handwritten and random ones.
#![allow(unreachable_pub, reason = "a module of a test binary is not reachable from outside")]
#![allow(dead_code, reason = "each test binary uses a part of this module")]

pub mod handwritten;
pub mod known_differences;
pub mod random;
