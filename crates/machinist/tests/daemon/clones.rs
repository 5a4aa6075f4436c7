//! A machine that was cloned after it joined: both machines report it, and the later one is refused.

use std::fs;
use std::process::Command;

use super::fixture::{DaemonFixture, DaemonProcess, set_boot_id, wait_for_text, wait_until};
use crate::up::machinist;

#[test]
fn a_clone_is_refused_and_both_report_it() {
    let fixture = DaemonFixture::start();
    let root = fixture.join("w1");
    let clone = fixture.directory.path().join("clone");
    fs::write(root.join("etc/machine-id"), "11111111111111111111111111111111\n").unwrap();
    fixture.apply_files(&[("/etc/one", "first")]);
    let mut daemon = DaemonProcess::start(&root, "w1");
    wait_for_text(&root.join("etc/one"), "first");
    fixture.wait_done("w1");

    assert!(Command::new("cp").arg("-a").args([&root, &clone]).status().unwrap().success());
    set_boot_id(&clone, "boot-of-the-clone");
    fs::write(clone.join("etc/machine-id"), "22222222222222222222222222222222\n").unwrap();
    let mut second = DaemonProcess::start(&clone, "w1");
    let conflict = fixture.wait_for_event("w1", "IdentityConflict");
    assert!(conflict.contains("boot-of-the-clone") && conflict.contains("222222"), "{conflict}");
    let refused = fixture.wait_for_event("w1", "IdentityRefused");
    assert!(refused.contains("machinist leave") && refused.contains("111111"), "{refused}");
    wait_until("the status of the clone", || {
        let status = machinist(&["daemon", "status", "--root", clone.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        match status.status.code() == Some(3) && said.contains("REFUSED") {
            true => Ok(()),
            false => Err(said),
        }
    });

    // The first one goes on, the clone does nothing.
    fixture.apply_files(&[("/etc/one", "second")]);
    wait_for_text(&root.join("etc/one"), "second");
    fixture.wait_done("w1");
    assert!(fs::read_to_string(clone.join("etc/one")).unwrap().contains("first"));
    let node = fixture.node("w1");
    assert_eq!(node["status"]["nodeInfo"]["machineID"], "11111111111111111111111111111111");
    daemon.assert_runs();
    second.assert_runs();

    // What the clone does when it leaves does not concern the first one.
    drop(second);
    let left = machinist(&["leave", "--root", clone.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&left.stdout).into_owned();
    assert!(said.contains("another machine works under this name"), "{left:?}");
    fixture.wait_done("w1");

    // A reboot of the first one is no clone.
    drop(daemon);
    set_boot_id(&root, "the-next-boot");
    let before = fixture.events("w1").len();
    daemon = DaemonProcess::start(&root, "w1");
    wait_until("the claim of the next boot", || {
        let claim = fixture.annotation("w1", "machinist.dev/identity-claim");
        if claim.starts_with("the-next-boot ") { Ok(()) } else { Err(claim) }
    });
    fixture.apply_files(&[("/etc/one", "third")]);
    wait_for_text(&root.join("etc/one"), "third");
    daemon.assert_runs();
    let events = fixture.events("w1");
    assert!(!events[before..].iter().any(|event| event.starts_with("Identity")), "{events:?}");
}
