//! An API server that lost the Node of a machine, or claims another config than the machine has.

use super::fixture::{DaemonFixture, DaemonProcess, wait_for_text};

#[test]
fn a_machine_whose_node_is_gone_registers_again() {
    let fixture = DaemonFixture::start();
    let root = fixture.join("w1");
    fixture.apply_files(&[("/etc/one", "first")]);
    let mut daemon = DaemonProcess::start(&root, "w1");
    wait_for_text(&root.join("etc/one"), "first");
    fixture.wait_done("w1");
    fixture.machinist(&["delete", "node", "w1"]);
    fixture.wait_done("w1");
    daemon.assert_runs();
}

/// The Node as a backup has it that was made before the last update.
#[test]
fn the_disk_is_right_and_the_node_is_corrected() {
    let fixture = DaemonFixture::start();
    let root = fixture.join("w1");
    let mut rendered = Vec::new();
    for text in ["first", "second"] {
        fixture.apply_files(&[("/etc/one", text)]);
        let daemon = DaemonProcess::start(&root, "w1");
        wait_for_text(&root.join("etc/one"), text);
        fixture.wait_done("w1");
        rendered.push(fixture.annotation("w1", "currentConfig"));
        drop(daemon);
    }
    // The pool does not correct what its machines should have.
    fixture.machinist(&["pause", "worker"]);
    let prefix = "machineconfiguration.openshift.io";
    let claim = |key: &str| format!("{prefix}/{key}={}", rendered[0]);
    let [current, desired] = ["currentConfig", "desiredConfig"].map(claim);
    fixture.machinist(&["annotate", "--overwrite", "node", "w1", &current, &desired]);
    let mut daemon = DaemonProcess::start(&root, "w1");
    let event = fixture.wait_for_event("w1", "CurrentConfigMismatch");
    assert!(event.contains(&rendered[0]) && event.contains(&rendered[1]), "{event}");
    wait_for_text(&root.join("etc/one"), "first");
    fixture.wait_done("w1");
    daemon.assert_runs();
}

/// The Node as a backup has it that was made before the machine rebooted.
#[test]
fn a_restored_claim_of_an_earlier_boot_refuses_nobody() {
    let fixture = DaemonFixture::start();
    let root = fixture.join("w1");
    fixture.apply_files(&[("/etc/one", "first")]);
    let mut daemon = DaemonProcess::start(&root, "w1");
    wait_for_text(&root.join("etc/one"), "first");
    fixture.wait_done("w1");
    let earlier = "machinist.dev/identity-claim=earlier-boot unknown 1000";
    fixture.machinist(&["annotate", "--overwrite", "node", "w1", earlier]);
    fixture.apply_files(&[("/etc/one", "second")]);
    wait_for_text(&root.join("etc/one"), "second");
    fixture.wait_done("w1");
    let claim = fixture.annotation("w1", "machinist.dev/identity-claim");
    assert!(claim.starts_with("w1 "), "{claim}");
    let events = fixture.events("w1");
    assert!(!events.iter().any(|event| event.starts_with("Identity")), "{events:?}");
    daemon.assert_runs();
}
