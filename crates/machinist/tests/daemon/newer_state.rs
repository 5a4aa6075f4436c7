//! A binary that was upgraded and downgraded again finds files of the newer version: the daemon says which, and does not end.

use std::fs;

use super::fixture::{DaemonFixture, DaemonProcess, wait_for_text, wait_until};

const NEWER: &str = r#"{"version": 99}"#;
const FILES: [&str; 4] = [
    "etc/.machinist-journal",
    "etc/.machinist-journal.quarantine",
    "etc/machine-config-daemon/machinist-pending.json",
    "etc/machine-config-daemon/machinist-before.json",
];

#[test]
fn a_file_of_a_newer_version_is_named_and_does_not_end_the_daemon() {
    let fixture = DaemonFixture::start();
    let root = fixture.join("w1");
    for (round, path) in FILES.into_iter().enumerate() {
        let file = root.join(path);
        // What is lost here is what the daemon would have done at the end of the test.
        let before = fs::read(&file).ok();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, NEWER).unwrap();
        let mut daemon = DaemonProcess::start(&root, "w1");
        fixture.apply_files(&[("/etc/one", &format!("round-{round}-"))]);
        wait_until(&format!("{path} to be named"), || {
            let reason = fixture.annotation("w1", "reason");
            match reason.contains(path) && reason.contains("version 99") {
                true => Ok(()),
                false => Err(reason),
            }
        });
        daemon.assert_runs();
        match before {
            Some(bytes) => fs::write(&file, bytes).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        wait_for_text(&root.join("etc/one"), &format!("round-{round}-"));
        fixture.wait_done("w1");
        daemon.assert_runs();
    }
}
