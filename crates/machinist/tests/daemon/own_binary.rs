//! The binary that the service runs belongs to Machinist wherever `join --binary` has put it.

use std::fs;

use super::fixture::{DaemonFixture, DaemonProcess, wait_until};

#[test]
fn a_config_that_replaces_the_binary_of_the_service_is_refused() {
    let fixture = DaemonFixture::start();
    let root = fixture.join("w1");
    let unit = root.join("etc/systemd/system/machinist-daemon.service");
    let unit = fs::read_to_string(unit).unwrap();
    let binary = env!("CARGO_BIN_EXE_machinist");
    assert!(unit.contains(&format!("ExecStart={binary} ")), "{unit}");
    let mut daemon = DaemonProcess::start(&root, "w1");
    fixture.wait_done("w1");
    fixture.apply_files(&[("/etc/one", "one"), (binary, "x")]);
    wait_until("the refusal", || {
        let reason = fixture.annotation("w1", "reason");
        let is_refused = reason.contains("it belongs to Machinist") && reason.contains(binary);
        if is_refused { Ok(()) } else { Err(reason) }
    });
    assert!(!root.join("etc/one").exists() && !root.join(binary.trim_start_matches('/')).exists());
    daemon.assert_runs();
    fixture.apply_files(&[("/etc/one", "two")]);
    fixture.wait_done("w1");
    assert_eq!(fs::read_to_string(root.join("etc/one")).unwrap(), "two");
}
