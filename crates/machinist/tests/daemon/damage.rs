//! A `currentconfig` that is empty or damaged is written again, and the machine goes on as before.

use std::fs;

use super::fixture::{DaemonFixture, DaemonProcess, wait_for_text, wait_until};
use crate::up::machinist;

#[test]
fn a_damaged_current_config_is_written_again() {
    let fixture = DaemonFixture::start();
    let root = fixture.join("w1");
    let (one, current) =
        (root.join("etc/one"), root.join("etc/machine-config-daemon/currentconfig"));
    fs::write(&one, "as it was\n").unwrap();
    fixture.apply_files(&[("/etc/one", "first")]);
    let mut daemon = DaemonProcess::start(&root, "w1");
    wait_for_text(&one, "first");
    fixture.wait_done("w1");
    let written = fs::read(&current).unwrap();

    for (round, damage) in [b"".as_slice(), b"{", b"\xff\xfe", b"{\"spec\":[]}"].iter().enumerate()
    {
        drop(daemon);
        fs::write(&current, damage).unwrap();
        let status = machinist(&["daemon", "status", "--root", root.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        assert_eq!(status.status.code(), Some(3), "{said}");
        assert!(said.contains("currentconfig is "), "{said}");
        daemon = DaemonProcess::start(&root, "w1");
        wait_until("the file to be written again", || match fs::read(&current) {
            Ok(found) if found == written => Ok(()),
            found => Err(format!("round {round}: {found:?}")),
        });
        fixture.wait_done("w1");
    }
    let event = fixture.wait_for_event("w1", "CurrentConfigRebuilt");
    assert!(event.contains("rendered-worker-") && event.contains("matches"), "{event}");

    // The files of the old config are still known as such.
    fixture.apply_files(&[("/etc/two", "second")]);
    wait_for_text(&root.join("etc/two"), "second");
    fixture.wait_done("w1");
    assert_eq!(fs::read_to_string(&one).unwrap(), "as it was\n");

    // An edit meanwhile is not taken for the config.
    drop(daemon);
    fs::write(&current, "").unwrap();
    fs::write(root.join("etc/two"), "edited").unwrap();
    daemon = DaemonProcess::start(&root, "w1");
    wait_until("the machine to be degraded", || {
        let reason = fixture.annotation("w1", "reason");
        match reason.contains("content mismatch for file \"/etc/two\"") {
            true => Ok(()),
            false => Err(reason),
        }
    });
    daemon.assert_runs();

    // The force file writes everything again, whatever was there.
    drop(daemon);
    fs::write(&current, "damaged").unwrap();
    fs::create_dir_all(root.join("run")).unwrap();
    fs::write(root.join("run/machine-config-daemon-force"), "").unwrap();
    daemon = DaemonProcess::start(&root, "w1");
    wait_for_text(&root.join("etc/two"), "second");
    drop(daemon);

    // It can leave with a damaged file, with its API server and without.
    fs::write(&current, "").unwrap();
    let left = machinist(&["leave", "--root", root.to_str().unwrap()]);
    assert!(left.status.success(), "{left:?}");
    assert!(!root.join("etc/two").exists() && !root.join("etc/machine-config-daemon").exists());
}

#[test]
fn a_machine_with_a_damaged_config_leaves_without_its_api_server() {
    let mut fixture = DaemonFixture::start();
    let root = fixture.join("w1");
    let (one, current) =
        (root.join("etc/one"), root.join("etc/machine-config-daemon/currentconfig"));
    fs::write(&one, "as it was\n").unwrap();
    fixture.apply_files(&[("/etc/one", "first")]);
    let daemon = DaemonProcess::start(&root, "w1");
    wait_for_text(&one, "first");
    fixture.wait_done("w1");
    drop(daemon);
    fixture.up.take().unwrap().stop();
    fs::write(&current, "").unwrap();
    let left = machinist(&["leave", "--root", root.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&left.stdout).into_owned();
    assert!(left.status.success(), "{left:?}");
    assert!(said.contains("currentconfig is empty") && said.contains("look for links"), "{said}");
    assert_eq!(fs::read_to_string(&one).unwrap(), "as it was\n");
}
