//! Node disruption policies that restart the daemon itself, or a unit whose job waits for the daemon: the config is done, and
//! the daemon restarts once.

use super::fixture::{InterferenceFixture, NODE};
use serde_json::json;

const STARTS: &str =
    "journalctl --no-pager -u machinist-daemon.service | grep -c 'systemd.*: Started'";

#[test]
fn a_job_that_waits_for_the_daemon_is_not_waited_for() {
    let fixture = InterferenceFixture::start(None);
    let (hub, machine) = (&fixture.hub, &fixture.machine);
    let restart = json!({"type": "Restart", "restart": {"serviceName": "restarter.service"}});
    let policy = json!({"units": [{"name": "restarter.service", "actions": [restart]}]});
    hub.set_node_disruption_policy(&policy);
    let before: usize = machine.sh(STARTS).unwrap().trim().parse().unwrap();
    let contents = "[Service]\nType=oneshot\nRemainAfterExit=yes\n\
        ExecStart=/bin/systemctl restart machinist-daemon.service\n";
    let units =
        json!({"systemd": {"units": [{"name": "restarter.service", "contents": contents}]}});
    hub.create_unselected_config("restarts", &units);
    hub.annotate(NODE, &[("desiredConfig", "restarts")]);
    hub.wait_done(machine, "restarts");
    machine
        .wait_for("the job to end", |machine| {
            Ok(machine.exec(&["systemctl", "is-active", "restarter.service"])?.succeeded())
        })
        .unwrap();
    let after: usize = machine.sh(STARTS).unwrap().trim().parse().unwrap();
    assert_eq!(after, before + 1);
    hub.wait_done(machine, "restarts");
}

#[test]
fn a_policy_that_restarts_the_daemon_converges_after_one_restart() {
    let fixture = InterferenceFixture::start(None);
    let machine = &fixture.machine;
    let restart =
        json!({"type": "Restart", "restart": {"serviceName": "machinist-daemon.service"}});
    let policy = json!({"files": [{"path": "/etc/one", "actions": [restart]}]});
    fixture.hub.set_node_disruption_policy(&policy);
    let before: usize = machine.sh(STARTS).unwrap().trim().parse().unwrap();
    fixture.desire("first", &[("/etc/one", "one\n")]);
    fixture.hub.wait_done(machine, "first");
    std::thread::sleep(std::time::Duration::from_secs(10));
    let after: usize = machine.sh(STARTS).unwrap().trim().parse().unwrap();
    assert_eq!(after, before + 1);
    fixture.hub.wait_done(machine, "first");
    assert_eq!(fixture.read("/etc/one"), "one\n");
}

/// A drop-in for all services: one with limits is taken, and the daemon runs with it; one that would keep the daemon from
/// starting is refused on the machine in the words of `validate`.
#[test]
fn a_drop_in_for_all_services_does_not_take_the_daemon_away() {
    let fixture = InterferenceFixture::start(None);
    let (hub, machine) = (&fixture.hub, &fixture.machine);
    let path = "/etc/systemd/system/service.d/10-all.conf";
    let none = [path, "/etc/one"].map(|path| json!({"path": path, "actions": [{"type": "None"}]}));
    hub.set_node_disruption_policy(&json!({"files": none}));
    fixture.desire("limits", &[(path, "[Service]\nLimitNOFILE=12345\n")]);
    hub.wait_done(machine, "limits");
    machine.sh("systemctl daemon-reload; systemctl restart machinist-daemon.service").unwrap();
    let limit = machine.sh("systemctl show -P LimitNOFILE machinist-daemon.service").unwrap();
    assert_eq!(limit, "12345\n");

    let text = "[Service]\nExecStart=\nExecStart=/bin/false\n";
    fixture.desire("no-daemon", &[(path, text), ("/etc/one", "one\n")]);
    hub.wait_state(machine, "Unreconcilable", |hub, name| {
        let reason = hub.annotation(name, "reason");
        let words = "ExecStart= would apply to Machinist's own units too";
        anyhow::ensure!(reason.contains(path) && reason.contains(words), "{reason}");
        Ok(true)
    });
    assert_eq!(fixture.read(path), "[Service]\nLimitNOFILE=12345\n");
    assert!(!machine.exists("/etc/one").unwrap());
    fixture.desire("back", &[("/etc/one", "back\n")]);
    hub.wait_done(machine, "back");
    assert!(!machine.exists(path).unwrap());
    fixture.assert_daemon_never_exited();
}
