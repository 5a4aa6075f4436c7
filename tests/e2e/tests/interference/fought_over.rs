//! A unit that changes a managed file as often as the daemon heals it: heals, log lines and events are bounded, the
//! reason names the unit, and other paths are healed at once.

use super::fixture::{InterferenceFixture, NODE};
use machinist_e2e::{wait_for, wait_with_timeout};
use std::time::Duration;

const UNIT: &str = "fighter.service";
/// How long the fight goes on before it is counted.
const FIGHT: Duration = Duration::from_secs(20);

/// Starts a unit that runs a command every 100 ms.
fn start_fight(fixture: &InterferenceFixture, command: &str) {
    let unit =
        format!("[Service]\nExecStart=/bin/sh -c 'while :; do {command}; sleep 0.1; done'\n");
    fixture.machine.write_file(&format!("/run/systemd/system/{UNIT}"), unit).unwrap();
    fixture.machine.sh(&format!("systemctl daemon-reload && systemctl start {UNIT}")).unwrap();
}

fn count(fixture: &InterferenceFixture, command: &str) -> usize {
    fixture.machine.sh(&format!("{command} || true")).unwrap().trim().parse().unwrap()
}

/// Events are written after the state that they explain.
#[track_caller]
fn wait_for_event(fixture: &InterferenceFixture, reason: &str) {
    let waited = wait_for(&format!("event {reason}"), || {
        Ok(fixture.hub.events(NODE).iter().any(|event| event == reason))
    });
    waited.unwrap();
}

#[test]
fn a_path_that_is_fought_over_costs_little_and_is_reported() {
    let fixture = InterferenceFixture::start(None);
    let machine = &fixture.machine;
    fixture.desire("first", &[("/etc/one", "one\n"), ("/etc/two", "two\n")]);
    fixture.hub.wait_done(machine, "first");
    fixture.hub.annotate(NODE, &[("machinist.dev/drift", "heal")]);
    let lines = "journalctl --no-pager -u machinist-daemon.service | wc -l";
    let (lines_before, events_before) = (count(&fixture, lines), fixture.hub.events(NODE).len());
    start_fight(&fixture, "rm -f /etc/one");
    std::thread::sleep(FIGHT);
    let heals = count(
        &fixture,
        "journalctl --no-pager -u machinist-daemon.service | grep -c 'healed drift.*/etc/one'",
    );
    let lines = count(&fixture, lines) - lines_before;
    let events = fixture.hub.events(NODE);
    let new = &events[events_before..];
    eprintln!("{heals} heals, {lines} log lines, {} events: {new:?}", new.len());
    assert!((3..=7).contains(&heals), "{heals} heals");
    assert!(lines <= 120, "{lines} log lines");
    assert!(new.len() <= 20, "{new:?}");
    fixture.wait_degraded(&["\"/etc/one\" was healed ", "is repeatedly changed by", UNIT]);
    wait_for_event(&fixture, "ConfigDriftConflict");
    // Another path does not wait.
    machine.sh("echo drifted >/etc/two").unwrap();
    wait_with_timeout(Duration::from_secs(5), "/etc/two to be healed", || {
        Ok(fixture.read("/etc/two") == "two\n")
    })
    .unwrap();
    // A config without the path ends the conflict.
    fixture.desire("second", &[("/etc/two", "two\n")]);
    fixture.hub.wait_done(machine, "second");
    fixture.assert_daemon_never_exited();
}

#[test]
fn the_unit_that_fights_is_stopped_if_the_policy_says_so() {
    let fixture = InterferenceFixture::start(None);
    let machine = &fixture.machine;
    fixture.desire("first", &[("/etc/one", "one\n")]);
    fixture.hub.wait_done(machine, "first");
    let policy = |value: &'static str| {
        let drift = [("machinist.dev/drift", "heal"), ("machinist.dev/drift-conflict", value)];
        fixture.hub.annotate(NODE, &drift);
    };
    policy("stop");
    // The file stays open for a while, so that the process is found where the kernel does not name it.
    start_fight(&fixture, "{ echo mine; sleep 0.1; } >/etc/one");
    fixture.wait_degraded(&["machinist.dev/drift-conflict", "report, stop-unit or degrade"]);
    policy("stop-unit");
    wait_with_timeout(Duration::from_secs(30), "the unit to be stopped", || {
        let state = machine.sh(&format!("systemctl is-active {UNIT} || true"))?;
        anyhow::ensure!(state == "inactive\n", fixture.hub.annotation(NODE, "reason"));
        Ok(true)
    })
    .unwrap();
    // What the unit wrote last may be found after the machine was Done for a moment.
    wait_for("the file to be healed", || Ok(fixture.read("/etc/one") == "one\n")).unwrap();
    fixture.hub.wait_done(machine, "first");
    wait_for_event(&fixture, "ConfigDriftUnitStopped");
    fixture.assert_daemon_never_exited();
}
