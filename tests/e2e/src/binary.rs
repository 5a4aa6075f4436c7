//! The `machinist` binary that the machines and clusters of a test run.

use crate::command::run;
use anyhow::{Context, Result, anyhow, bail};
use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The path of the `machinist` binary, built with the profile of the calling test. `MACHINIST_BIN` overrides it.
pub fn machinist_binary() -> Result<PathBuf> {
    static BUILD_RESULT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILD_RESULT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.clone().map_err(|error| anyhow!(error))
}

fn build() -> Result<PathBuf> {
    if let Some(binary) = env::var_os("MACHINIST_BIN") {
        return Ok(PathBuf::from(binary));
    }
    // A test runs as TARGET/PROFILE/deps/NAME-HASH.
    let test = env::current_exe()?;
    let profile = test.ancestors().nth(2).context("the test is not in a target directory")?;
    let target = profile.parent().context("the test is not in a target directory")?;
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // The variables that cargo sets for this package would make build scripts of other packages run again.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            cargo.env_remove(name.as_ref());
        }
    }
    // The integration tests bring the binary with them, built with the features that the calling test was built with;
    // `cargo build` would compile the dependencies again with others.
    cargo.args([
        "test",
        "--quiet",
        "--workspace",
        "--no-run",
        "--test",
        "integration",
        "--target-dir",
    ]);
    cargo.arg(target);
    if profile.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    run(cargo.current_dir(crate::cache::source_root())).context("build machinist")?;
    let binary = profile.join("machinist");
    if !binary.exists() {
        bail!("cargo has built no {}", binary.display());
    }
    Ok(binary)
}
