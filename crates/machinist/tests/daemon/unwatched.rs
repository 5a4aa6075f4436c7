//! A host whose inotify instances or watches are used up: the daemon says so, works, and finds drift by repeated checks.

use std::fs;

use super::fixture::{DaemonFixture, DaemonProcess, wait_for_text, wait_until};

#[test]
fn a_daemon_that_cannot_watch_says_so_and_finds_drift() {
    let fixture = DaemonFixture::start();
    let limits = [
        ("max_inotify_instances", 0, "max_user_instances"),
        ("max_inotify_watches", 1, "max_user_watches"),
    ];
    let (name, root) = ("w1", fixture.join("w1"));
    let one = root.join("etc/one");
    for (round, (limit, value, remedy)) in limits.into_iter().enumerate() {
        let text = format!("text-{round}-");
        fixture.apply_files(&[("/etc/one", &text)]);
        let mut daemon = DaemonProcess::start_limited(&root, name, limit, value);
        wait_for_text(&one, &text);
        fixture.wait_done(name);
        wait_until("the event that names the setting", || {
            let events = fixture.events(name);
            let is_it =
                |it: &String| it.starts_with("ConfigDriftMonitorLimited") && it.contains(remedy);
            if events.iter().any(is_it) { Ok(()) } else { Err(format!("{events:?}")) }
        });

        fs::write(&one, "edited").unwrap();
        wait_until("the edit to be found", || {
            let reason = fixture.annotation(name, "reason");
            if reason.contains("/etc/one") { Ok(()) } else { Err(reason) }
        });
        fs::write(&one, &text).unwrap();
        fixture.wait_done(name);
        let next = format!("next-{round}-");
        fixture.apply_files(&[("/etc/one", &next)]);
        wait_for_text(&one, &next);
        fixture.wait_done(name);
        daemon.assert_runs();
    }
}
