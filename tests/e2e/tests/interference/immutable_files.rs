//! `chattr +i` on a managed file: a config that changes it is refused before anything is written, with the path.

use super::fixture::{InterferenceFixture, NODE};

#[test]
fn a_config_that_changes_an_immutable_file_is_refused_before_anything_is_written() {
    let fixture = InterferenceFixture::start(None);
    let machine = &fixture.machine;
    fixture.desire("first", &[("/etc/motd", "first\n"), ("/etc/other", "first\n")]);
    fixture.hub.wait_done(machine, "first");
    machine.sh("chattr +i /etc/motd").unwrap();
    let before =
        machine.sh("find /etc -xdev -newermt '1 second ago'; date +%s.%N >/run/now").unwrap();
    // `/etc/new` comes first: it would be written before the immutable file.
    let second = [("/etc/new", "second\n"), ("/etc/motd", "second\n"), ("/etc/other", "first\n")];
    fixture.desire("second", &second);
    fixture.wait_degraded(&["/etc/motd", "is immutable: run chattr -i /etc/motd"]);
    let written = machine.sh("find /etc -xdev -newermt @$(cat /run/now)").unwrap();
    assert_eq!(written, "", "before: {before}");
    assert_eq!(fixture.hub.annotation(NODE, "currentConfig"), "first");
    // A config that leaves the file alone is taken, and the machine is well on it.
    fixture.desire("third", &[("/etc/motd", "first\n"), ("/etc/other", "third\n")]);
    fixture.hub.wait_done(machine, "third");
    assert_eq!(fixture.read("/etc/other"), "third\n");
    // The refused config is taken when the remedy was applied.
    fixture.hub.annotate(NODE, &[("desiredConfig", "second")]);
    fixture.wait_degraded(&["run chattr -i /etc/motd"]);
    machine.sh("chattr -i /etc/motd").unwrap();
    fixture.hub.wait_done(machine, "second");
    assert_eq!(
        (fixture.read("/etc/motd"), fixture.read("/etc/new")),
        ("second\n".into(), "second\n".into())
    );
    fixture.assert_daemon_never_exited();
}
