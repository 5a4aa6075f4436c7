//! A command after a change that leaves a child behind, which ignores SIGTERM: the command is over, and runs again.

use super::fixture::InterferenceFixture;
use crate::daemon::fixture::{ANNOTATION_PREFIX, file, files};
use serde_json::{Value, json};

const COMMAND: &str = "/usr/local/bin/leave-a-child";

#[test]
fn a_command_that_leaves_a_child_behind_runs_again() {
    let fixture = InterferenceFixture::start(None);
    let (hub, machine) = (&fixture.hub, &fixture.machine);
    let script = "#!/bin/sh\n(trap '' TERM; touch /run/trapped; exec sleep 1000) &\nuntil test -e /run/trapped; do :; done\nrm /run/trapped\necho run >>/run/commands\n";
    machine.write_file(COMMAND, script).unwrap();
    machine.sh(&format!("chmod 755 {COMMAND}")).unwrap();
    hub.set_node_disruption_policy(&Value::Null);
    hub.patch_pool(&json!({"spec": {"paused": false}}));
    for round in 1..=2 {
        let mut config = files(&[file("/etc/command/input", &format!("{round}\n"))]);
        config["ignition"] = json!({"version": "3.5.0"});
        let object = json!({
            "apiVersion": format!("{ANNOTATION_PREFIX}/v1"), "kind": "MachineConfig",
            "metadata": {
                "name": "80-command", "labels": {format!("{ANNOTATION_PREFIX}/role"): "worker"},
                "annotations": {"machinist.dev/on-change": format!("run {COMMAND}")},
            },
            "spec": {"config": config},
        });
        let manifest = hub.lab.dir().join("manifest.json");
        std::fs::write(&manifest, object.to_string()).unwrap();
        let target = hub.wait_rendered_after(|| {
            let applied = hub.machinist(&["apply", "-f", manifest.to_str().unwrap()]);
            assert!(applied.succeeded(), "{applied:?}");
        });
        hub.wait_done(machine, &target);
        assert_eq!(machine.sh("cat /run/commands").unwrap(), "run\n".repeat(round));
    }
    machine
        .wait_for("the children to be gone", |machine| {
            Ok(!machine.exec(&["pgrep", "-f", "sleep 1000"])?.succeeded())
        })
        .unwrap();
    fixture.assert_daemon_never_exited();
}
