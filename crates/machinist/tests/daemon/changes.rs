//! What many changes cost: memory, open files and log lines stay bounded.
//!
//! `MACHINIST_CHANGES` sets the number of changes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::Stdio;

use super::fixture::{DaemonFixture, DaemonProcess, wait_for_text};

const CHANGES: usize = 40;
/// Changes before the first measurement: caches and thread pools have their size then.
const WARM_UP: usize = 10;
/// More log lines than this for one change are of use to nobody.
const MAX_LINES_PER_CHANGE: usize = 10;

/// Anonymous memory in kB, and the number of open files.
fn usage(pid: u32) -> (usize, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let memory = memory.trim().trim_end_matches(" kB").parse().unwrap();
    (memory, fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count())
}

/// The config whose change a log line is about. Lines that say that the server's limit of writes is reached, which so
/// many changes a second do, are not about a change.
fn changed_config(line: &str) -> Option<&str> {
    let (_, span) = line.split_once(" INFO reconcile{")?;
    let (_, config) = span.split_once("config=\"rendered-")?;
    config.split('"').next().filter(|_| !line.contains("failure_log"))
}

#[test]
fn many_changes_cost_no_memory_no_files_and_few_log_lines() {
    let changes =
        std::env::var("MACHINIST_CHANGES").ok().and_then(|it| it.parse().ok()).unwrap_or(CHANGES);
    let fixture = DaemonFixture::start();
    let root = fixture.join("w1");
    let log = fixture.directory.path().join("log");
    let mut daemon =
        DaemonProcess::start_with_log(&root, "w1", Stdio::from(File::create(&log).unwrap()));
    let change = |round: usize| {
        let text = format!("change-{round}-");
        fixture.apply_files(&[("/etc/one", &text), ("/etc/two", "the-same")]);
        wait_for_text(&root.join("etc/one"), &text);
        fixture.wait_done("w1");
    };
    (0..WARM_UP).for_each(change);
    let before = usage(daemon.id());
    (WARM_UP..WARM_UP + changes).for_each(change);
    let after = usage(daemon.id());
    daemon.assert_runs();
    let log = fs::read_to_string(&log).unwrap();
    let log_lines: Vec<&str> = log.lines().filter_map(changed_config).collect();
    // The last change may still have lines to come; no other moment matters.
    let configs = BTreeSet::from_iter(&log_lines).len();
    assert!(configs >= changes, "{configs} of {changes} changes in the log:\n{log}");
    let per_change = log_lines.len().div_ceil(configs);
    println!(
        "{changes} changes: memory {} -> {} kB, files {} -> {}, {per_change} log lines a change",
        before.0, after.0, before.1, after.1
    );
    assert!(after.1 <= before.1 + 2, "files: {before:?} -> {after:?}");
    assert!(after.0 <= before.0 + 2048, "memory: {before:?} -> {after:?}");
    assert!(per_change <= MAX_LINES_PER_CHANGE, "{per_change} lines a change:\n{log}");
}
