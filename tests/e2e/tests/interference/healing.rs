//! A pipe in the place of a managed file: other paths are healed as if it were not there.

use super::fixture::{InterferenceFixture, NODE};
use machinist_e2e::wait_with_timeout;
use std::time::Duration;

/// Far below the longest pause between two attempts, 60 s: the watch notices drift, not the next attempt.
const NOTICED_BY_THE_WATCH: Duration = Duration::from_secs(15);

#[test]
fn an_obstruction_at_one_path_does_not_keep_others_from_being_healed() {
    let fixture = InterferenceFixture::start(None);
    let machine = &fixture.machine;
    fixture.desire("first", &[("/etc/one", "one\n"), ("/etc/two", "two\n")]);
    fixture.hub.wait_done(machine, "first");
    fixture.hub.annotate(NODE, &[("machinist.dev/drift", "heal")]);
    machine.sh("rm /etc/one && mkfifo /etc/one").unwrap();
    fixture.wait_degraded(&["cannot heal", "\"/etc/one\"", "move it away"]);
    // The pause between two attempts grows; the watch continues. More rounds would be a conflict.
    for round in 0..3 {
        machine.sh("echo drifted >/etc/two").unwrap();
        let healed = wait_with_timeout(NOTICED_BY_THE_WATCH, "/etc/two to be healed", || {
            Ok(fixture.read("/etc/two") == "two\n")
        });
        if let Err(error) = healed {
            panic!("round {round}: {error:#}\n{}", fixture.log());
        }
    }
    // An immutable file is an obstruction too.
    machine.sh("echo drifted >/etc/two && chattr +i /etc/two").unwrap();
    fixture.wait_degraded(&["run chattr -i /etc/two", "\"/etc/one\""]);
    machine.sh("rm /etc/one").unwrap();
    wait_with_timeout(NOTICED_BY_THE_WATCH, "/etc/one to be healed", || {
        Ok(machine.sh("cat /etc/one || true").unwrap() == "one\n")
    })
    .unwrap();
    machine.sh("chattr -i /etc/two").unwrap();
    fixture.hub.wait_done(machine, "first");
    assert_eq!(fixture.read("/etc/two"), "two\n");
    fixture.assert_daemon_never_exited();
}
