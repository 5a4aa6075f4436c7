//! Collects the state of the machine that the command runs on.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use machinist_core::redact::Redactor;
use serde_json::Value;

use super::{Collected, to_pretty_json};

/// How many lines of the daemon's log are collected.
const LOG_LINES: &str = "5000";
/// Directories below the root that only a managed machine has.
const DAEMON_DIRS: [&str; 2] = ["etc/machine-config-daemon", "var/lib/machinist"];

/// Whether a daemon manages the machine.
#[must_use]
pub fn is_managed(root: &Path) -> bool {
    DAEMON_DIRS.iter().any(|sign| root.join(sign).exists())
}

/// Collects the state of this machine. `status` is what the daemon's state on disk says, or why it cannot be read.
#[must_use]
pub fn collect_machine(root: &Path, status: Result<Value>, redactor: &Redactor) -> Collected {
    let mut collected = Collected::default();
    match status {
        Ok(mut status) => {
            redactor.redact_object(&mut status);
            collected.add("machine/status.json", to_pretty_json(&status));
        }
        Err(error) => collected.add_missing("the status of the machine", format!("{error:#}")),
    }
    match fs::read_to_string(root.join("etc/os-release")) {
        Ok(text) => collected.add("machine/os-release", text),
        Err(error) => collected.add_missing("/etc/os-release", error.to_string()),
    }
    let uname = rustix::system::uname();
    let words = [uname.sysname(), uname.release(), uname.version(), uname.machine()];
    let words = words.map(|word| word.to_string_lossy().into_owned()).join(" ");
    collected.add("machine/uname", words + "\n");
    for unit in ["machinist-daemon", "machinist-hub", "machinist-server"] {
        match service_log(root, unit) {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => collected.add(format!("machine/{unit}.log"), redactor.redact_log(&text)),
            Err(why) => collected.add_missing(format!("the log of {unit}"), why),
        }
    }
    collected
}

/// The journal of a service.
fn service_log(root: &Path, unit: &str) -> Result<String, String> {
    let mut journal = Command::new("journalctl");
    journal.args(["--no-pager", "--quiet", "-o", "short-iso", "-n", LOG_LINES, "-u", unit]);
    if root != Path::new("/") {
        journal.arg("--root").arg(root);
    }
    let output = journal.output().map_err(|error| format!("journalctl: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
