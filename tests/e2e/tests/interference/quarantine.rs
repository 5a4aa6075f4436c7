//! Names of the greatest length, and a change that cannot be undone: the daemon starts, reports, heals, takes configs,
//! tries again, and the machine can leave.

use super::fixture::{InterferenceFixture, NODE};
use machinist_e2e::wait_for;
use serde_json::json;

const SERVICE: &str = "machinist-daemon.service";

#[test]
fn names_of_the_greatest_length_are_applied_and_restored() {
    for length in [246, 255] {
        let long = format!("/etc/{}", "n".repeat(length));
        let fixture = InterferenceFixture::start(Some(&long));
        let machine = &fixture.machine;
        machine.write_file(&long, "mine\n").unwrap();
        fixture.desire("long", &[(&long, "long\n"), ("/etc/other", "long\n")]);
        fixture.hub.wait_done(machine, "long");
        assert_eq!(fixture.read(&long), "long\n");
        fixture.assert_daemon_never_exited();
        machine.sh("machinist leave").unwrap();
        assert_eq!(fixture.read(&long), "mine\n");
        assert_eq!(
            machine.sh("ls -A /etc | grep -c machine-config-daemon || true").unwrap(),
            "0\n"
        );
    }
}

/// Interrupts a change of `/etc/motd` by something that kills the process. The daemon does not run then.
pub(super) fn interrupt_a_change(fixture: &InterferenceFixture) {
    let machine = &fixture.machine;
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "interrupted"},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/motd", "contents": {"source": "data:,interrupted"}},
            {"path": "/etc/other", "contents": {"source": "data:,interrupted"}},
        ]}}},
    });
    machine.write_file("/run/interrupted.json", config.to_string()).unwrap();
    machine.sh(&format!("systemctl stop {SERVICE}")).unwrap();
    let interrupt = "for point in $(seq 1 200); do \
        MACHINIST_FAULT_POINT=$point machinist once --root / -f /run/interrupted.json >/dev/null 2>&1 && exit 1; \
        test -e /etc/.machinist-journal && grep -q interrupted /etc/motd && exit 0; \
        machinist once --root / --recover >/dev/null || exit 1; done; exit 1";
    machine.sh(interrupt).unwrap();
}

/// The same, and makes the new file immutable.
fn leave_a_change_that_cannot_be_undone(fixture: &InterferenceFixture) {
    interrupt_a_change(fixture);
    fixture.machine.sh("chattr +i /etc/motd").unwrap();
    fixture.machine.sh(&format!("systemctl start {SERVICE}")).unwrap();
}

#[test]
fn a_change_that_cannot_be_undone_holds_up_nothing_else() {
    let fixture = InterferenceFixture::start(None);
    let machine = &fixture.machine;
    fixture.desire("first", &[("/etc/motd", "first\n"), ("/etc/other", "first\n")]);
    fixture.hub.wait_done(machine, "first");
    fixture.hub.annotate(NODE, &[("machinist.dev/drift", "heal")]);
    leave_a_change_that_cannot_be_undone(&fixture);
    // The daemon starts and reports; everything else was undone.
    fixture.wait_degraded(&["could not be undone", "\"/etc/motd\"", "run chattr -i /etc/motd"]);
    assert_eq!(fixture.read("/etc/other"), "first\n");
    let status = machine.exec(&["machinist", "daemon", "status"]).unwrap();
    assert_eq!(status.code, 3, "{status:?}");
    assert!(status.stdout.contains("SET ASIDE"), "{status:?}");
    // It tries again, and is well.
    machine.sh("chattr -i /etc/motd").unwrap();
    fixture.hub.wait_done(machine, "first");
    assert_eq!(fixture.read("/etc/motd"), "first\n");
    assert_eq!(machine.sh("ls -A /etc | grep -c '^[.]machinist' || true").unwrap(), "0\n");
    // Again. Meanwhile it heals another path.
    leave_a_change_that_cannot_be_undone(&fixture);
    fixture.wait_degraded(&["run chattr -i /etc/motd"]);
    machine.sh("echo drifted >/etc/other").unwrap();
    wait_for("/etc/other to be healed", || Ok(fixture.read("/etc/other") == "first\n")).unwrap();
    // It takes a config that does not touch the path, and says so.
    fixture.desire("second", &[("/etc/motd", "first\n"), ("/etc/other", "second\n")]);
    fixture.wait_current("second");
    assert_eq!(fixture.read("/etc/other"), "second\n");
    fixture.wait_degraded(&["run chattr -i /etc/motd"]);
    // It refuses one that does.
    fixture.desire("third", &[("/etc/motd", "third\n"), ("/etc/new", "third\n")]);
    fixture.wait_degraded(&["nothing was changed", "run chattr -i /etc/motd"]);
    assert_eq!(machine.sh("ls /etc/new 2>/dev/null || true").unwrap(), "");
    fixture.assert_daemon_never_exited();
    // It survives a reboot in this state.
    machine.reboot().unwrap();
    machine
        .wait_for("the daemon to run", |machine| {
            Ok(machine.sh(&format!("systemctl is-active {SERVICE}"))? == "active\n")
        })
        .unwrap();
    // And it can leave: what cannot be restored is named, with what to do.
    let left = machine.sh("machinist leave").unwrap();
    let original = "/etc/machine-config-daemon/orig/etc/motd.mcdorig";
    let named = format!("run chattr -i /etc/motd, then move {original} there");
    assert!(left.contains("not restored") && left.contains(&named), "{left}");
    assert_eq!(machine.sh("ls /etc/other 2>/dev/null || true").unwrap(), "");
    assert_eq!(fixture.read(original), "as it was packaged\n");
    assert_eq!(machine.sh("ls -A /etc | grep -c '^[.]machinist' || true").unwrap(), "0\n");
    machine.sh("chattr -i /etc/motd").unwrap();
}

#[test]
fn a_journal_that_cannot_be_read_does_not_end_the_daemon() {
    let fixture = InterferenceFixture::start(None);
    let machine = &fixture.machine;
    machine.sh(&format!("systemctl stop {SERVICE}")).unwrap();
    machine.write_file("/etc/.machinist-journal", r#"{"version": 99}"#).unwrap();
    machine.sh(&format!("systemctl start {SERVICE}")).unwrap();
    fixture.wait_degraded(&["cannot be recovered", "/etc/.machinist-journal", "version 99"]);
    fixture.assert_daemon_never_exited();
    machine.sh("rm /etc/.machinist-journal").unwrap();
    fixture.hub.wait_done(machine, "mco-empty-mc");
    fixture.assert_daemon_never_exited();
}
