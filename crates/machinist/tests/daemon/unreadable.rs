//! Records of the daemon and the identity of its machine, damaged in several ways: nothing stops, and nothing is lost that
//! is known elsewhere.

use std::fs;
use std::path::Path;

use super::fixture::{DaemonFixture, DaemonProcess, wait_for_text, wait_until};
use crate::up::machinist;

const JOURNAL: &str = "etc/.machinist-journal";
const RECORDS: [&str; 4] = [
    JOURNAL,
    "etc/.machinist-journal.done",
    "etc/.machinist-journal.quarantine",
    "etc/machine-config-daemon/machinist-before.json",
];
const DAMAGES: [&str; 4] = ["[]", "{\"version\":1,\"tok", "\0\0\0\0\0\0\0\0", ""];

#[test]
fn damaged_records_are_moved_away_and_nothing_stops() {
    let fixture = DaemonFixture::start();
    let root = fixture.join("w1");
    let (one, own) = (root.join("etc/one"), root.join("etc/machine-config-daemon"));
    fs::write(&one, "as it was\n").unwrap();
    fixture.apply_files(&[("/etc/one", "first-")]);
    drop(run_until_done(&fixture, &root, "first-"));
    for (round, (path, damage)) in RECORDS.into_iter().zip(DAMAGES).enumerate() {
        fs::write(root.join(path), damage).unwrap();
        let text = format!("round-{round}-");
        fixture.apply_files(&[("/etc/one", &text)]);
        drop(run_until_done(&fixture, &root, &text));
        assert_eq!(fs::read_to_string(root.join(format!("{path}.unreadable"))).unwrap(), damage);
        let event = fixture.wait_for_event("w1", "InterruptedUpdateRecovered: /");
        assert!(event.contains(".unreadable"), "{event}");
        fs::remove_file(root.join(format!("{path}.unreadable"))).unwrap();
    }
    // Damaged while the daemon runs, and a directory instead of a file.
    let mut daemon = run_until_done(&fixture, &root, "round-3-");
    for (round, file) in [own.join("currentconfig"), own.join("machinist-pending.json")]
        .into_iter()
        .chain([root.join(JOURNAL), root.join("etc/.machinist-journal.new")])
        .enumerate()
    {
        let _ = fs::remove_file(&file);
        fs::create_dir(&file).unwrap();
        let text = format!("directory-{round}-");
        fixture.apply_files(&[("/etc/one", &text)]);
        wait_for_text(&one, &text);
        fixture.wait_done("w1");
        assert!(!file.is_dir(), "{}", file.display());
        daemon.assert_runs();
    }
    drop(daemon);

    // A machine can leave whatever its records are, those of a newer version included.
    for path in RECORDS {
        fs::write(root.join(path), r#"{"version": 99}"#).unwrap();
    }
    fs::write(own.join("machinist-pending.json"), r#"{"version": 99}"#).unwrap();
    let left = machinist(&["leave", "--root", root.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&left.stdout).into_owned();
    assert!(left.status.success(), "{left:?}");
    for path in RECORDS {
        assert!(said.contains(&format!("/{path}.unreadable")), "{path}: {said}");
    }
    assert_eq!(fs::read_to_string(&one).unwrap(), "as it was\n");
}

fn run_until_done(fixture: &DaemonFixture, root: &Path, text: &str) -> DaemonProcess {
    let mut daemon = DaemonProcess::start(root, "w1");
    wait_for_text(&root.join("etc/one"), text);
    fixture.wait_done("w1");
    daemon.assert_runs();
    daemon
}

#[test]
fn a_machine_keeps_its_identity_when_the_file_is_damaged() {
    let fixture = DaemonFixture::start();
    let root = fixture.join("w1");
    let state = root.join("var/lib/machinist");
    let (file, copy) = (state.join("kubeconfig"), state.join("last-good/kubeconfig"));
    let identity = fs::read_to_string(&file).unwrap();
    fixture.apply_files(&[("/etc/one", "first-")]);
    let mut daemon = run_until_done(&fixture, &root, "first-");
    wait_for_text(&copy, &identity);
    for (round, damage) in [Some(""), Some("{"), None].into_iter().enumerate() {
        drop(daemon);
        match damage {
            Some(text) => fs::write(&file, text).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let text = format!("round-{round}-");
        fixture.apply_files(&[("/etc/one", &text)]);
        if damage.is_none() {
            // The watchdog, too, which runs whatever the daemon does.
            let watchdog = machinist(&["daemon", "watchdog", "--root", root.to_str().unwrap()]);
            assert!(watchdog.status.success(), "{watchdog:?}");
        }
        daemon = run_until_done(&fixture, &root, &text);
        assert_eq!(fs::read_to_string(&file).unwrap(), identity);
    }
    drop(daemon);

    // Without a copy, the daemon waits, and says what to do.
    fs::remove_file(&copy).unwrap();
    fs::write(&file, "{").unwrap();
    let mut daemon = DaemonProcess::start(&root, "w1");
    wait_until("the status to say so", || {
        let status = machinist(&["daemon", "status", "--root", root.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        let is_said = said.contains("missing or damaged: run machinist join again");
        if is_said && status.status.code() == Some(3) { Ok(()) } else { Err(said) }
    });
    daemon.assert_runs();
    fixture.apply_files(&[("/etc/one", "waited-")]);
    fs::write(&file, &identity).unwrap();
    wait_for_text(&root.join("etc/one"), "waited-");
    fixture.wait_done("w1");
    daemon.assert_runs();

    // Nothing of it stays.
    wait_for_text(&copy, &identity);
    drop(daemon);
    let left = machinist(&["leave", "--root", root.to_str().unwrap()]);
    assert!(left.status.success(), "{left:?}");
    assert!(!file.exists() && !copy.exists());
}
