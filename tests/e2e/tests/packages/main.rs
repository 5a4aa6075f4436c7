//! What `make image`, `make deb` and `make sbom` make: the same every time, and good for what it is for.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod deb;
mod image;
mod sbom;

use machinist_e2e::cache;
use std::path::Path;
use std::process::{Command, Output};

/// One of the project's scripts, with the program to pack and the folder to write.
fn script(name: &str, program: Option<&Path>, out: &Path) -> Output {
    let mut command = Command::new(cache::source_root().join("scripts").join(name));
    command.env("OUT", out).env("DEB_OPTIONS", "-Zgzip -z1").env("SOURCE_DATE_EPOCH", "1700000000");
    if let Some(program) = program {
        command.env("BINARY", program);
    }
    command.output().unwrap()
}

/// The same, which has to succeed.
#[track_caller]
fn run_script(name: &str, program: Option<&Path>, out: &Path) {
    let output = script(name, program, out);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
