//! Files that someone makes larger than the disk: they are healed like any other, and the next change comes.

use super::fixture::{InterferenceFixture, NODE};

#[test]
fn a_file_larger_than_the_disk_is_healed_like_any_other() {
    let fixture = InterferenceFixture::start(None);
    let machine = &fixture.machine;
    fixture.hub.annotate(NODE, &[("machinist.dev/drift", "heal")]);
    fixture.desire("first", &[("/etc/one", "first\n"), ("/etc/two", "first\n")]);
    fixture.hub.wait_done(machine, "first");
    machine.sh("truncate -s 2T /etc/one").unwrap();
    machine
        .wait_for("the file to be healed", |machine| {
            Ok(machine.sh("stat -c %s /etc/one")?.trim() == "6")
        })
        .unwrap();
    fixture.hub.wait_done(machine, "first");
    // Larger than any state file of the daemon.
    machine.sh("truncate -s 2T /etc/machine-config-daemon/currentconfig /etc/two").unwrap();
    fixture.desire("second", &[("/etc/one", "second\n"), ("/etc/two", "first\n")]);
    fixture.hub.wait_done(machine, "second");
    assert_eq!(
        (fixture.read("/etc/one"), fixture.read("/etc/two")),
        ("second\n".into(), "first\n".into())
    );
    fixture.assert_daemon_never_exited();
}
