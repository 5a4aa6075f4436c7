//! `machinist firstboot` from the outside, on the root of a host of packages that nobody boots.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const LEFT: &str = "etc/ignition-machine-config-encapsulated.json";

fn firstboot(root: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(["firstboot", "-o", "json", "--root"]).arg(root).args(more).output().unwrap()
}

fn root(config: Option<&Value>) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("etc")).unwrap();
    if let Some(config) = config {
        fs::write(root.path().join(LEFT), config.to_string()).unwrap();
    }
    root
}

fn config(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["config"] = json!({"ignition": {"version": "3.3.0"}});
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "rendered-worker-1"}, "spec": spec,
    })
}

#[test]
fn a_machine_with_nothing_left_to_do_is_left_alone() {
    let root = root(None);
    let output = firstboot(root.path(), &[]);
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["config"], Value::Null);
}

#[test]
fn what_is_as_it_should_be_is_put_away_without_a_restart() {
    let root = root(Some(&config(&json!({}))));
    let output = firstboot(root.path(), &[]);
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (said["config"].as_str(), &said["change"]),
        (Some("rendered-worker-1"), &Value::Null)
    );
    assert!(!root.path().join(LEFT).exists());
}

#[test]
fn what_the_host_cannot_do_is_refused_and_stays_to_be_done() {
    let image = format!("quay.example.com/os@sha256:{}", "0".repeat(64));
    let root = root(Some(&config(&json!({"osImageURL": image}))));
    let output = firstboot(root.path(), &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("osImageURL") && said.contains(&image), "{said}");
    assert!(root.path().join(LEFT).exists());
}

#[test]
fn a_file_that_is_no_config_is_named_and_not_quoted() {
    let root = root(Some(&json!({"spec": {"kernelArguments": "hunter2"}})));
    let output = firstboot(root.path(), &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(LEFT) && said.contains("column") && !said.contains("hunter2"), "{said}");
}

/// The same file as `machinist once` takes.
#[test]
fn a_config_may_be_given_in_a_file() {
    let root = root(None);
    let output = firstboot(root.path(), &["--file", "../../examples/chrony.yaml"]);
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["config"], "50-worker-chrony");
}
