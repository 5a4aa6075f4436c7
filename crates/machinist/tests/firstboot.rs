//! `machinist firstboot` from the outside, on the root directory of a package-based host that does not run.
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
fn without_a_config_nothing_happens() {
    let root = root(None);
    let output = firstboot(root.path(), &[]);
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["config"], Value::Null);
}

#[test]
fn a_machine_that_matches_its_config_needs_no_reboot() {
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
fn a_config_that_the_host_cannot_apply_is_refused_and_kept() {
    let image = format!("quay.example.com/os@sha256:{}", "0".repeat(64));
    let root = root(Some(&config(&json!({"osImageURL": image}))));
    let output = firstboot(root.path(), &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("osImageURL") && said.contains(&image), "{said}");
    assert!(root.path().join(LEFT).exists());
}

#[test]
fn an_invalid_file_is_named_but_not_quoted() {
    let root = root(Some(&json!({"spec": {"kernelArguments": "hunter2"}})));
    let output = firstboot(root.path(), &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(LEFT) && said.contains("column") && !said.contains("hunter2"), "{said}");
}

/// The same file formats as `machinist once`.
#[test]
fn a_config_may_be_given_in_a_file() {
    let root = root(None);
    let output = firstboot(root.path(), &["-f", "../../examples/chrony.yaml"]);
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["config"], "50-worker-chrony");
}

/// Sets the FIPS mode that the kernel reports.
fn has_fips(root: &Path, has: &str) {
    let directory = root.join("proc/sys/crypto");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("fips_enabled"), has).unwrap();
}

/// The kernel reports FIPS mode. A config without it is refused then.
#[test]
fn fips_mode_is_detected_and_cannot_be_disabled() {
    let fips = |has: Option<&str>, wanted: bool| {
        let root = root(Some(&config(&json!({"fips": wanted}))));
        if let Some(has) = has {
            has_fips(root.path(), has);
        }
        let output = firstboot(root.path(), &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said, root.path().join(LEFT).exists())
    };
    for (has, wanted, why) in [
        (Some("1\n"), false, "spec.fips is false, and this machine runs in FIPS mode"),
        // This host cannot enable it.
        (Some("0\n"), true, "spec.fips is true, and this machine has no boot loader"),
        (None, true, "spec.fips is true, and this machine has no boot loader"),
    ] {
        let (code, said, left) = fips(has, wanted);
        assert_eq!((code, left), (Some(3), true), "{said}");
        assert!(said.contains(why), "{said}");
    }
    for (has, wanted) in [(Some("1\n"), true), (Some("0\n"), false), (None, false)] {
        let (code, said, left) = fips(has, wanted);
        assert_eq!((code, left), (Some(0), false), "{has:?} {wanted}: {said}");
    }
}

fn write_config(root: &Path, spec: &Value) -> String {
    let mut config = config(spec);
    config["spec"]["config"]["storage"]["files"] =
        json!([{"path": "/etc/greeting", "mode": 420, "contents": {"source": "data:,hello"}}]);
    let path = root.join("config.json");
    fs::write(&path, config.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Without Ignition and without a server. Only the first config may enable FIPS mode.
#[test]
fn write_also_does_the_work_of_ignition() {
    let root = root(None);
    let file = write_config(root.path(), &json!({"fips": true}));
    has_fips(root.path(), "1\n");
    let output = firstboot(root.path(), &["-f", &file, "--write"]);
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(said["written"].as_u64() > Some(0), "{said}");
    assert_eq!(fs::read_to_string(root.path().join("etc/greeting")).unwrap(), "hello");
    let file = write_config(root.path(), &json!({"fips": false}));
    has_fips(root.path(), "0\n");
    let output = firstboot(root.path(), &["-f", &file, "--write"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("FIPS"), "{output:?}");
}

/// MCO's flags do the same: a config that the host cannot apply is refused before a file is written.
#[test]
fn once_from_is_a_first_boot() {
    let once = |root: &Path, file: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
        command.args(["daemon", "start", "--once-from", file, "--skip-reboot", "--root-mount"]);
        command.arg(root).output().unwrap()
    };
    let root = root(None);
    let image = format!("quay.example.com/os@sha256:{}", "0".repeat(64));
    let file = write_config(root.path(), &json!({"osImageURL": image}));
    let output = once(root.path(), &file);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("osImageURL"), "{output:?}");
    assert!(!root.path().join("etc/greeting").exists());
    let file = write_config(root.path(), &json!({}));
    let output = once(root.path(), &file);
    assert!(output.status.success(), "{output:?}");
    assert!(root.path().join("etc/greeting").exists());
    assert!(root.path().join("etc/machine-config-daemon/currentconfig").exists());
    let output = once(root.path(), "https://example.com/config");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("download the config and name the file"),
        "{output:?}"
    );
}
