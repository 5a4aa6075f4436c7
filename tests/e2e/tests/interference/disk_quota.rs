//! A disk quota: a config that exceeds it is undone and reported, and is taken when the quota allows it.

use super::fixture::{InterferenceFixture, NODE};
use crate::daemon::fixture::{differences, file, files, snapshot_trees};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use std::io::Write as _;

/// What the quota leaves, and what the config needs, in MiB.
const LEFT: u64 = 16;
const NEEDED: usize = 32;

#[test]
fn a_config_that_exceeds_the_quota_of_the_disk_is_taken_when_the_quota_is_raised() {
    let fixture = InterferenceFixture::start_with(|machine| machine.disk_with_quotas(1024));
    let (hub, machine) = (&fixture.hub, &fixture.machine);
    fixture.desire("first", &[("/etc/one", "first\n")]);
    hub.wait_done(machine, "first");
    let before = snapshot_trees(machine);
    machine.set_quota(Some(LEFT)).unwrap();

    // Small in the config, large on the disk.
    let line = "a line of a file that is larger than what the quota leaves\n";
    let text = line.repeat((NEEDED << 20) / line.len());
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text.as_bytes()).unwrap();
    let source = STANDARD.encode(packed.finish().unwrap());
    let source = format!("data:;base64,{source}");
    let large = json!({"path": "/etc/two", "mode": 0o644,
        "contents": {"compression": "gzip", "source": source}});
    let list = [file("/etc/new", "new\n"), file("/etc/one", "second\n"), large];
    hub.create_unselected_config("second", &files(&list));
    hub.annotate(NODE, &[("desiredConfig", "second")]);
    fixture.wait_degraded(&["uota exceeded"]);
    assert_eq!(fixture.read("/etc/one"), "first\n");
    assert!(!machine.exists("/etc/two").unwrap() && !machine.exists("/etc/new").unwrap());
    let changes = differences(&before, &snapshot_trees(machine));
    let changes: Vec<_> = changes.iter().filter(|path| !path.contains("machine-config")).collect();
    assert!(changes.is_empty(), "{changes:?}");
    let left = machine.sh("find /etc -name '.machinist-*'").unwrap();
    assert_eq!(left, "");
    fixture.assert_daemon_never_exited();

    machine.set_quota(None).unwrap();
    hub.wait_done(machine, "second");
    assert!(fixture.read("/etc/two") == text);
    assert_eq!(fixture.read("/etc/one"), "second\n");
    fixture.assert_daemon_never_exited();
}
