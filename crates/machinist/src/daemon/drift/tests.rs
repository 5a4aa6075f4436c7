//! Real directories, a real inotify, and manual changes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use machinist_core::api::MachineConfig;
use machinist_core::apply;
use machinist_core::drift::DriftKind;
use serde_json::json;

use super::super::once;
use super::*;

const UNIT: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";

/// A root with a config.
struct DriftFixture {
    dir: tempfile::TempDir,
    config: MachineConfig,
}

impl DriftFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for path in ["etc/systemd/system", "opt/real", "usr/lib/systemd/system"] {
            fs::create_dir_all(directory.path().join(path)).expect("a directory");
        }
        fs::write(directory.path().join("usr/lib/systemd/system/vendor.service"), UNIT)
            .expect("a file");
        symlink("/opt/real", directory.path().join("etc/by-link")).expect("a link");
        let config = apply::from_ignition(json!({
            "ignition": {"version": "3.5.0"},
            "storage": {"files": [
                {"path": "/etc/motd", "contents": {"source": "data:,hello"}},
                {"path": "/etc/deep/er/file", "contents": {"source": "data:,deep"}, "mode": 384},
                {"path": "/etc/by-link/file", "contents": {"source": "data:,linked"}}
            ]},
            "systemd": {"units": [
                {"name": "a.service", "contents": UNIT, "enabled": true,
                 "dropins": [{"name": "10.conf", "contents": "[Unit]\n"}]},
                {"name": "vendor.service", "enabled": true}
            ]}
        }));
        let site = Self { dir: directory, config };
        let root = HostRoot::open(site.root()).expect("a root");
        assert_eq!(once::apply_once(&root, &site.config).expect("a config").refused, None);
        site
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    async fn watch(&self) -> DriftWatcher {
        let reference = DriftReference::new(&self.config, None).expect("a reference");
        let watch = DriftWatcher::start(self.root(), reference).await.expect("a watch");
        assert_eq!(watch.findings(), []);
        watch
    }
}

/// The next findings; panics if they take too long.
async fn next(watch: &mut DriftWatcher) -> Vec<DriftFinding> {
    let next = tokio::time::timeout(Duration::from_secs(20), watch.next()).await;
    next.expect("nothing was found").expect("a look").to_vec()
}

/// One manual change.
type TestChange = fn(&DriftFixture);

#[tokio::test]
async fn everything_done_by_hand_is_seen_at_once_and_healed() {
    let changes: &[(&str, DriftKind, &str, TestChange)] = &[
        ("edited", DriftKind::Content, "/etc/motd", |site| {
            fs::write(site.at("/etc/motd"), "other").unwrap();
        }),
        ("deleted", DriftKind::Missing, "/etc/motd", |site| {
            fs::remove_file(site.at("/etc/motd")).unwrap();
        }),
        ("replaced by a link", DriftKind::Link, "/etc/motd", |site| {
            symlink("other", site.at("/etc/new")).unwrap();
            fs::rename(site.at("/etc/new"), site.at("/etc/motd")).unwrap();
        }),
        ("replaced by a file", DriftKind::Content, "/etc/deep/er/file", |site| {
            fs::write(site.at("/etc/deep/er/new"), "other").unwrap();
            fs::set_permissions(site.at("/etc/deep/er/new"), fs::Permissions::from_mode(0o600))
                .unwrap();
            fs::rename(site.at("/etc/deep/er/new"), site.at("/etc/deep/er/file")).unwrap();
        }),
        ("mode changed", DriftKind::Mode, "/etc/deep/er/file", |site| {
            fs::set_permissions(site.at("/etc/deep/er/file"), fs::Permissions::from_mode(0o644))
                .unwrap();
        }),
        ("masked", DriftKind::Masked, "/etc/systemd/system/a.service", |site| {
            fs::remove_file(site.at("/etc/systemd/system/a.service")).unwrap();
            symlink("/dev/null", site.at("/etc/systemd/system/a.service")).unwrap();
        }),
        (
            "a vendor's unit masked",
            DriftKind::Masked,
            "/etc/systemd/system/vendor.service",
            |site| {
                symlink("/dev/null", site.at("/etc/systemd/system/vendor.service")).unwrap();
            },
        ),
        (
            "disabled",
            DriftKind::Enablement,
            "/etc/systemd/system/multi-user.target.wants/a.service",
            |site| {
                fs::remove_file(site.at("/etc/systemd/system/multi-user.target.wants/a.service"))
                    .unwrap();
            },
        ),
        ("drop-in edited", DriftKind::Content, "/etc/systemd/system/a.service.d/10.conf", |site| {
            fs::write(site.at("/etc/systemd/system/a.service.d/10.conf"), "[Unit]\nAfter=x\n")
                .unwrap();
        }),
        ("directory renamed", DriftKind::Missing, "/etc/deep/er/file", |site| {
            fs::rename(site.at("/etc/deep"), site.at("/etc/moved")).unwrap();
        }),
        ("edited behind a link", DriftKind::Content, "/etc/by-link/file", |site| {
            fs::write(site.at("/opt/real/file"), "other").unwrap();
        }),
    ];
    let site = DriftFixture::new();
    let mut watch = site.watch().await;
    for (what, kind, path, change) in changes {
        change(&site);
        let found = next(&mut watch).await;
        assert_eq!((found[0].kind, found[0].path.as_str()), (*kind, *path), "{what}: {found:?}");
        let healed = heal(site.root(), &site.config, &BTreeSet::new()).expect("healed");
        assert_eq!(healed.needs_daemon_reload, path.contains("systemd"), "{what}: {healed:?}");
        assert_eq!(next(&mut watch).await, [], "{what}");
    }
}

#[tokio::test]
async fn directories_that_come_back_are_watched_again() {
    let site = DriftFixture::new();
    let mut watch = site.watch().await;
    for _ in 0..3 {
        fs::rename(site.at("/etc/deep"), site.at("/etc/moved")).unwrap();
        assert_eq!(next(&mut watch).await[0].kind, DriftKind::Missing);
        // Changes in the directory that was moved away do not matter; its return does.
        fs::write(site.at("/etc/moved/er/file"), "other").unwrap();
        fs::rename(site.at("/etc/moved"), site.at("/etc/deep")).unwrap();
        assert_eq!(next(&mut watch).await[0].kind, DriftKind::Content);
        fs::write(site.at("/etc/deep/er/file"), "deep").unwrap();
        assert_eq!(next(&mut watch).await, []);
    }
    // A link in the path that leads elsewhere.
    fs::remove_file(site.at("/etc/by-link")).unwrap();
    symlink("/opt/other", site.at("/etc/by-link")).unwrap();
    assert_eq!(next(&mut watch).await[0].path, "/etc/by-link/file");
    fs::create_dir(site.at("/opt/other")).unwrap();
    fs::write(site.at("/opt/other/file"), "linked").unwrap();
    assert_eq!(next(&mut watch).await, []);
}

#[tokio::test]
async fn what_does_not_matter_is_not_looked_at_and_a_burst_is_one_look() {
    let site = DriftFixture::new();
    let mut watch = site.watch().await;
    // Other names, a drop-in of someone else, and a touch have no effect.
    fs::write(site.at("/etc/other"), "x").unwrap();
    fs::write(site.at("/etc/systemd/system/a.service.d/50.conf"), "[Unit]\n").unwrap();
    fs::File::open(site.at("/etc/motd")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    // A burst: intermediate states are not reported.
    for number in 0..500 {
        fs::write(site.at("/etc/motd"), number.to_string()).unwrap();
        fs::write(site.at("/etc/deep/er/file"), number.to_string()).unwrap();
    }
    let found = next(&mut watch).await;
    assert_eq!(found.len(), 2, "{found:?}");
    fs::write(site.at("/etc/motd"), "hello").unwrap();
    fs::write(site.at("/etc/deep/er/file"), "deep").unwrap();
    assert_eq!(next(&mut watch).await, []);
}

#[tokio::test]
async fn the_writer_is_reported_where_the_kernel_supports_it() {
    if !writers::WriterTracker::new().is_available() {
        println!("this kernel does not report writers, or this user may not see them");
        return;
    }
    let site = DriftFixture::new();
    let mut watch = site.watch().await;
    // The process lives until its standard input is closed.
    let script = "echo other >etc/motd; mv etc/deep etc/moved; read line";
    let mut shell = tokio::process::Command::new("/bin/sh");
    shell.args(["-c", script]).current_dir(site.root()).stdin(std::process::Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    let mut found = next(&mut watch).await;
    while found.len() < 2 {
        found = next(&mut watch).await;
    }
    let [edited, moved] = found.as_slice() else { panic!("{found:?}") };
    let writer = watch.writer(edited).unwrap();
    assert_eq!((writer.pid, writer.command.as_deref()), (pid, Some("sh")), "{writer}");
    // Its child mv may have ended before it could be looked up.
    assert_ne!(watch.writer(moved).unwrap().pid, pid);
    drop(child.stdin.take());
    child.wait().await.unwrap();
    fs::write(site.at("/etc/motd"), "hello").unwrap();
    fs::rename(site.at("/etc/moved"), site.at("/etc/deep")).unwrap();
    while !next(&mut watch).await.is_empty() {}
}
