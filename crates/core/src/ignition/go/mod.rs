//! Small pieces of Go's libraries that Ignition's validation leans on, with the same verdicts.

pub mod path;
pub mod unit_file;
pub mod url;
