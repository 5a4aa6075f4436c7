//! The `machinist` program.
fn main() {}
