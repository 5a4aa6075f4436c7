//! After a crash at any point, the root directory has either the old or the new config, and the report names
//! which.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fixture::{OnceFixture, TreeSnapshot, difference, everything, files};

/// Names the point at which the process dies.
const FAULT: &str = "MACHINIST_FAULT_POINT";

/// The snapshots of the old and the new config.
struct CrashStates {
    before: TreeSnapshot,
    after: TreeSnapshot,
}

fn ends(old: Option<&Value>, new: &Value) -> CrashStates {
    let site = OnceFixture::new();
    old.map(|old| site.apply(old));
    let before = site.snapshot();
    site.apply(new);
    CrashStates { before, after: site.snapshot() }
}

impl CrashStates {
    /// Recovers, and checks that the root matches one of the two snapshots, and the report.
    #[track_caller]
    fn check(&self, site: &OnceFixture, what: &str) {
        let report = site.recover();
        let found = site.snapshot();
        let (end, tree) = match report["recovered"]["outcome"].as_str() {
            Some("undone") => ("old", &self.before),
            Some("finished") => ("new", &self.after),
            // It died before the change began or after it had ended.
            _ if found == self.before => ("old", &self.before),
            _ => ("new", &self.after),
        };
        let differences = difference(tree, &found);
        assert_eq!(differences, Vec::<String>::new(), "{what}: {report}: not {end}");
        assert_eq!(site.recover()["recovered"], Value::Null, "{what}: recovered twice");
    }
}

#[test]
fn a_crash_at_any_point_leaves_the_old_or_the_new_config() {
    let [old, new] = everything();
    for old in [None, Some(&old)] {
        let ends = ends(old, &new);
        let mut point = 1;
        loop {
            let site = OnceFixture::new();
            old.map(|old| site.apply(old));
            let output = site.command(&new).env(FAULT, point.to_string()).output().unwrap();
            if output.status.success() {
                break;
            }
            assert_eq!(output.status.code(), None, "{}", String::from_utf8_lossy(&output.stderr));
            ends.check(&site, &format!("point {point}"));
            // From there, the new config can be applied.
            site.apply(&new);
            assert_eq!(difference(&ends.after, &site.snapshot()), Vec::<String>::new());
            point += 1;
        }
        println!("{} points", point - 1);
        assert!(point > 50, "{point}");
    }
}

#[test]
fn a_crash_during_recovery_is_recovered() {
    let [old, new] = everything();
    let ends = ends(Some(&old), &new);
    for first in [20, 60] {
        for second in 1.. {
            let site = OnceFixture::new();
            site.apply(&old);
            site.command(&new).env(FAULT, first.to_string()).output().unwrap();
            let mut recover = Command::new(env!("CARGO_BIN_EXE_machinist"));
            recover.args(["once", "--recover", "--root"]).arg(site.root());
            let output = recover.env(FAULT, second.to_string()).output().unwrap();
            ends.check(&site, &format!("points {first} and {second}"));
            if output.status.success() {
                break;
            }
        }
    }
}

#[test]
fn a_recovery_is_reported_even_if_the_next_change_fails() {
    let [old, new] = everything();
    let site = OnceFixture::new();
    site.apply(&old);
    site.command(&new).env(FAULT, "20").output().unwrap();
    let bad = files("bad", &json!([{"path": "/etc/motd/x"}]));
    let output = site.once(&bad);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("everything-new had been interrupted: it was undone"), "{said}");
}

#[test]
fn a_journal_of_another_version_is_not_touched() {
    let site = OnceFixture::new();
    site.write("etc/.machinist-journal", r#"{"version": 99}"#, 0o600);
    let before = site.snapshot();
    let output = site.once(&everything()[0]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("version 99 is newer"));
    assert_eq!(site.snapshot(), before);
}

/// `MACHINIST_KILLS` sets the number of runs; the default is small.
#[test]
fn a_kill_at_any_time_leaves_the_old_or_the_new_config() {
    let [old, new] = everything();
    let ends = ends(Some(&old), &new);
    let kills =
        std::env::var("MACHINIST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let started = Instant::now();
    let warm = OnceFixture::new();
    warm.apply(&old);
    let whole = Instant::now();
    warm.apply(&new);
    let whole = whole.elapsed();
    let mut interrupted = 0;
    for kill in 0..kills {
        let site = OnceFixture::new();
        site.apply(&old);
        let mut child = site.command(&new).spawn().unwrap();
        // Spread over the whole run, and a little beyond it.
        std::thread::sleep(whole.mul_f64(1.1 * f64::from(kill) / f64::from(kills)));
        let _ = child.kill();
        let status = child.wait().unwrap();
        interrupted += usize::from(!status.success());
        ends.check(&site, &format!("kill {kill}"));
    }
    println!("{kills} kills, {interrupted} in time, {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(3600));
}
