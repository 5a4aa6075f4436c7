//! Real commands, an API server that does not respond, and the record on disk.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_core::apply::from_ignition;
use machinist_core::health::{FAILED_CONFIG_PATH, FailedConfig};
use serde_json::json;

use super::super::root::HostRoot;
use super::*;

fn config(text: &str) -> MachineConfig {
    let source = format!("data:;base64,{}", STANDARD.encode(text));
    from_ignition(json!({
        "ignition": {"version": "3.5.0"},
        "storage": {"files": [{"path": HEALTH_SPEC_PATH, "contents": {"source": source}}]}
    }))
}

#[test]
fn the_file_is_read_from_the_config() {
    let text = "deadline: 90s\nunits:\n- kubelet.service\ncommands:\n- run: [/bin/true, -x]\n  timeout: 5s\napi: true\n";
    let spec = spec(&config(text)).expect("a file").expect("a spec");
    assert_eq!((spec.deadline.as_secs(), spec.checks().len()), (90, 3));
    assert!(
        super::spec(&from_ignition(json!({"ignition": {"version": "3.5.0"}})))
            .expect("a config")
            .is_none()
    );
    for (text, expected) in [
        ("unit: [a.service]", "/etc/machinist/health.yaml: "),
        ("deadline: [", "/etc/machinist/health.yaml: line 1"),
        ("deadline: 5\napi: true", "/etc/machinist/health.yaml: deadline: "),
        ("units: []", "/etc/machinist/health.yaml: units: nothing is checked"),
        ("", "/etc/machinist/health.yaml: 0 documents"),
    ] {
        let error = format!("{:#}", super::spec(&config(text)).expect_err("an error"));
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[tokio::test]
async fn commands_end_well_badly_late_or_not_at_all() {
    let limit = Duration::from_secs(20);
    let run = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    assert_eq!(checks::run_directly(&run(&["/bin/true"]), limit).await, Ok(()));
    let message =
        checks::run_directly(&run(&["/bin/sh", "-c", "exit 3"]), limit).await.expect_err("bad");
    assert!(message.contains("exit status: 3"), "{message}");
    let message =
        checks::run_directly(&run(&["/bin/nothing"]), limit).await.expect_err("no command");
    assert!(message.contains("No such file"), "{message}");
    let soon = Duration::from_millis(50);
    let message =
        checks::run_directly(&run(&["/bin/sleep", "1000"]), soon).await.expect_err("endless");
    assert!(message.contains("not ended"), "{message}");
}

#[tokio::test]
async fn a_gate_that_does_not_open_names_the_first_check_that_failed() {
    let root = tempfile::tempdir().expect("a directory");
    let spec = spec(&config("deadline: 1s\nunits: [a.service]\napi: true")).expect("a file");
    let target = HealthTarget { root: root.path(), client: None };
    let failing = wait_until_healthy(&spec.expect("a spec"), target).await.expect_err("closed");
    assert_eq!(failing.to_string(), "unit a.service: systemd does not run on this machine");
}

#[test]
fn the_record_of_a_failed_config_stays_until_it_is_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("etc")).expect("a directory");
    let root = HostRoot::open(directory.path()).expect("a root");
    assert_eq!(read(&root).expect("a look"), None);
    let failing = FailedCheck { check: "API".to_owned(), problem: "no answer".to_owned() };
    let (config, previous) = ("new".to_owned(), "old".to_owned());
    let marker = FailedConfig { config, previous, image: String::new(), failing };
    write(&root, &marker).expect("kept");
    assert_eq!(read(&root).expect("a look"), Some(marker.clone()));
    write(&root, &FailedConfig { config: "newer".to_owned(), ..marker }).expect("kept");
    assert_eq!(read(&root).expect("a look").expect("a marker").config, "newer");
    remove(&root).expect("forgotten");
    remove(&root).expect("forgotten twice");
    assert_eq!(read(&root).expect("a look"), None);
    fs::write(directory.path().join(&FAILED_CONFIG_PATH[1..]), "{").expect("a file");
    assert_eq!(read(&root).expect("a look"), None);
}
