//! A config that a host cannot carry out: `plan` and the machine refuse it with the host's reason, and nothing is
//! written.

use super::fixture::{FirstWeek, machine_config};
use crate::daemon::fixture::{file, files};
use serde_json::json;

pub(super) fn what_a_host_cannot_do_is_refused_before_it_is_written(week: &FirstWeek) {
    let (hub, plain) = (&week.hub, &week.plain);
    plain
        .wait_for("the report of the host", |_| {
            Ok(!hub.annotation("plain", "machinist.dev/host").is_empty())
        })
        .unwrap();
    let abilities = week.abilities(plain);
    assert_eq!(
        (&abilities["images"], &abilities["bootLoader"], &abilities["init"], &abilities["users"]),
        (&json!("plain"), &json!("nobody"), &json!("systemd"), &json!("any")),
        "{abilities}"
    );
    assert_eq!(abilities["packages"], "apt", "{abilities}");
    let boots = plain.boots();
    for (spec, reason) in [
        (
            json!({"kernelArguments": ["a=1"]}),
            "spec.kernelArguments: this host is package-based and cannot set a=1: it has no boot loader",
        ),
        (
            json!({"kernelType": "realtime"}),
            "spec.kernelType: this host is package-based and cannot change its kernel to realtime",
        ),
        (
            json!({"extensions": ["usbguard"]}),
            "spec.extensions: this host is package-based and has no extensions (usbguard)",
        ),
    ] {
        let path = week.manifest(&machine_config("60-not-here", spec));
        let output = hub.machinist(&["plan", "-f", &path]);
        assert!(output.code == 3 && output.stdout.contains(reason), "{output:?}");
    }
    // The machine says the same, for a config that was applied without a plan.
    let mut spec =
        json!({"kernelArguments": ["a=1"], "config": files(&[file("/etc/motd", "never\n")])});
    spec["config"]["ignition"] = json!({"version": "3.5.0"});
    hub.apply_config_spec("60-not-here", &spec);
    hub.wait_state(plain, "Unreconcilable", |hub, name| {
        let reason = hub.annotation(name, "reason");
        anyhow::ensure!(reason.contains("cannot set a=1: it has no boot loader"), reason);
        Ok(true)
    });
    let output = hub.machinist(&["rollout", "status", "worker"]);
    assert!(output.stdout.contains("cannot set a=1: it has no boot loader"), "{output:?}");
    assert_eq!(plain.read_file("/etc/motd").unwrap(), b"as it was packaged\n");
    assert_eq!(plain.boots(), boots);
    // Taken out of the config, nothing is left of it, and no reboot was needed for that.
    let policy = json!({"files": [{"path": "/etc/motd", "actions": [{"type": "None"}]}]});
    hub.set_node_disruption_policy(&policy);
    let config = hub.apply_config("60-not-here", &files(&[file("/etc/motd", "hello\n")]));
    week.wait_done(&config);
    assert_eq!(plain.read_file("/etc/motd").unwrap(), b"hello\n");
    assert_eq!(plain.boots(), boots);
}
