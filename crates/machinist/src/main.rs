//! The `machinist` binary. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    machinist::cli::run()
}
