//! Templates for the comparison with Go: handwritten and random ones.
pub mod handwritten;
pub mod known_differences;
pub mod random;
