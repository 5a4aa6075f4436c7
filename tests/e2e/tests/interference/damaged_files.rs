//! Records of the daemon that something has damaged: a machine goes on with what is known elsewhere, and forgets no reboot.

use super::fixture::{InterferenceFixture, NODE};
use super::quarantine::interrupt_a_change;

const SERVICE: &str = "machinist-daemon.service";
const PENDING: &str = "/etc/machine-config-daemon/machinist-pending.json";

#[test]
fn a_damaged_journal_of_a_real_change_holds_up_nothing() {
    let fixture = InterferenceFixture::start(None);
    let machine = &fixture.machine;
    fixture.desire("first", &[("/etc/motd", "first\n"), ("/etc/other", "first\n")]);
    fixture.hub.wait_done(machine, "first");
    fixture.hub.annotate(NODE, &[("machinist.dev/drift", "heal")]);
    for damage in
        ["truncate -s 100", "truncate -s 0", "dd if=/dev/zero bs=64 count=1 conv=notrunc of="]
    {
        interrupt_a_change(&fixture);
        let separator = if damage.ends_with('=') { "" } else { " " };
        machine.sh(&format!("{damage}{separator}/etc/.machinist-journal")).unwrap();
        machine.sh(&format!("systemctl start {SERVICE}")).unwrap();
        machine
            .wait_for("the files to be healed", |machine| {
                let found = machine.sh("cat /etc/motd /etc/other")?;
                anyhow::ensure!(found == "first\nfirst\n", "{damage}: {found:?}");
                Ok(true)
            })
            .unwrap();
        fixture.hub.wait_done(machine, "first");
        assert!(machine.exists("/etc/.machinist-journal.unreadable").unwrap(), "{damage}");
    }
    let events = fixture.hub.events(NODE);
    assert!(events.iter().any(|event| event == "InterruptedUpdateRecovered"), "{events:?}");
    fixture.assert_daemon_never_exited();
    // It takes a config, and leaves while a journal is damaged.
    fixture.desire("second", &[("/etc/motd", "second\n"), ("/etc/new", "second\n")]);
    fixture.hub.wait_done(machine, "second");
    machine.sh("echo damaged >/etc/.machinist-journal").unwrap();
    let left = machine.sh("machinist leave").unwrap();
    assert!(left.contains("/etc/.machinist-journal.unreadable"), "{left}");
    assert_eq!(fixture.read("/etc/motd"), "as it was packaged\n");
    assert!(!machine.exists("/etc/new").unwrap());
}

#[test]
fn a_reboot_is_not_forgotten_with_its_record() {
    let fixture = InterferenceFixture::start(None);
    let (hub, machine) = (&fixture.hub, &fixture.machine);
    hub.annotate(NODE, &[("machinist.dev/reboot", "deferred")]);
    // No policy: this costs a reboot.
    fixture.desire("reboots", &[("/etc/reboots", "reboots\n")]);
    let is_waiting =
        |name: &str| Ok(hub.annotation(name, "machinist.dev/restart-pending") == "reboots");
    hub.wait_state(machine, "Working", |_, name| is_waiting(name));
    let boots = machine.boots();
    machine.sh(&format!("systemctl stop {SERVICE}; echo damaged >{PENDING}")).unwrap();
    machine.sh(&format!("systemctl start {SERVICE}")).unwrap();
    machine
        .wait_for("the record to be replaced", |machine| {
            Ok(machine.sh(&format!("cat {PENDING}"))?.contains("\"config\":\"reboots\""))
        })
        .unwrap();
    // Not without the permission.
    hub.wait_state(machine, "Working", |_, name| is_waiting(name));
    assert_eq!(machine.boots(), boots);
    hub.annotate(NODE, &[("machinist.dev/restart", "reboots")]);
    hub.wait_done(machine, "reboots");
    assert_eq!(machine.boots(), boots + 1);
    assert!(hub.events(NODE).iter().any(|event| event == "PendingChangeLost"));
}
