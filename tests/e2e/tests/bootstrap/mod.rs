//! `machinist bootstrap`: it predicts the names that the controller assigns later, and writes a directory that real
//! machines boot from.

mod first_boot;
mod inputs;
mod names;
