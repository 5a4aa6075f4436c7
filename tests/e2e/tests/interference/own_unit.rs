//! A node disruption policy that restarts the daemon itself: the config is done, and the daemon restarts once.

use super::fixture::InterferenceFixture;
use serde_json::json;

#[test]
fn a_policy_that_restarts_the_daemon_converges_after_one_restart() {
    let fixture = InterferenceFixture::start(None);
    let machine = &fixture.machine;
    let restart =
        json!({"type": "Restart", "restart": {"serviceName": "machinist-daemon.service"}});
    let policy = json!({"files": [{"path": "/etc/one", "actions": [restart]}]});
    fixture.hub.set_node_disruption_policy(&policy);
    let starts = "journalctl --no-pager -u machinist-daemon.service | grep -c 'systemd.*: Started'";
    let before: usize = machine.sh(starts).unwrap().trim().parse().unwrap();
    fixture.desire("first", &[("/etc/one", "one\n")]);
    fixture.hub.wait_done(machine, "first");
    std::thread::sleep(std::time::Duration::from_secs(10));
    let after: usize = machine.sh(starts).unwrap().trim().parse().unwrap();
    assert_eq!(after, before + 1);
    fixture.hub.wait_done(machine, "first");
    assert_eq!(fixture.read("/etc/one"), "one\n");
}
