//! The `machinist` program: the first word chooses the room.

use std::process::ExitCode;

fn main() -> ExitCode {
    machinist::cli::run()
}
