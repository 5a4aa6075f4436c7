//! The outputs of `make image`, `make deb` and `make sbom`: reproducible and usable.

mod deb;
mod image;
mod sbom;
mod upgrade_power_cuts;

use machinist_e2e::cache;
use std::path::Path;
use std::process::{Command, Output};

/// Runs one of the project's scripts, with the binary to pack and the output directory.
fn script(name: &str, binary: Option<&Path>, out: &Path) -> Output {
    let mut command = Command::new(cache::source_root().join("scripts").join(name));
    command.env("OUT", out).env("DEB_OPTIONS", "-Zgzip -z1").env("SOURCE_DATE_EPOCH", "1700000000");
    if let Some(binary) = binary {
        command.env("BINARY", binary);
    }
    command.output().unwrap()
}

/// The same, which must succeed.
#[track_caller]
fn run_script(name: &str, binary: Option<&Path>, out: &Path) {
    let output = script(name, binary, out);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
