//! What machines and pools report, and what `heal`, `hold`, `release` and `delete mcp` do: a hub and two
//! machines whose roots are directories, with daemons of their own.

mod fleet;
mod objects;
mod reports;
mod silence;

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use fleet::{Fleet, texts};

fn motd(contents: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {
            "name": "50-motd", "labels": {"machineconfiguration.openshift.io/role": "worker"},
        },
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [{
            "path": "/etc/motd", "mode": 420, "overwrite": true,
            "contents": {"source": format!("data:,{contents}")},
        }]}}},
    })
}

fn policy() -> Value {
    json!({
        "apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"},
        "spec": {"nodeDisruptionPolicy": {
            "files": [{"path": "/etc/motd", "actions": [{"type": "None"}]}],
        }},
    })
}

#[test]
fn every_machine_says_why_and_what_to_do() {
    let fleet = Fleet::start(&["w1", "w2"]);
    // A plan knows the policy that it is given.
    let path = fleet.directory.path().join("first.json");
    let both = json!({"apiVersion": "v1", "kind": "List", "items": [policy(), motd("one")]});
    fs::write(&path, both.to_string()).unwrap();
    fleet.wait_for_status("w2 ");
    let plan = fleet.ok(&["plan", "-f", path.to_str().unwrap()]);
    assert!(plan.contains("costs nothing") && !plan.contains("reboot"), "{plan}");
    fleet.apply(&[policy(), motd("one")]);
    fleet.rolled_out();
    assert_eq!((fleet.motd("w1"), fleet.motd("w2")), ("one".to_owned(), "one".to_owned()));

    // Without files, the API server is asked.
    let name = fleet.ok(&["render", "--pool", "worker", "-o", "name"]);
    let node = fleet.ok(&["get", "node", "w1", "-o", "json"]);
    assert!(name.starts_with("rendered-worker-") && node.contains(name.trim()), "{name}");
    let source = fleet.ok(&["explain", "--pool", "worker", "/etc/motd"]);
    assert!(source.contains("50-motd: decides"), "{source}");
    fleet.ok(&["generate", "--pool", "worker"]);
    // A machine reads its own config with its own identity.
    let root = fleet.root("w1").display().to_string();
    let mut own = Command::new(env!("CARGO_BIN_EXE_machinist"));
    own.args(["daemon", "plan", "--root", &root]).env_remove("KUBECONFIG").env("HOME", "/nowhere");
    let own = own.env_remove("XDG_STATE_HOME").output().unwrap();
    assert_eq!(own.status.code(), Some(0), "{}", texts(&own).1);

    reports::a_machine_answers_who_may_ask(&fleet);
    reports::a_machine_says_what_is_machinists(&fleet);
    drift_ends_a_watch_and_is_healed(&fleet);
    a_held_machine_is_left_alone(&fleet);
    a_viewer_sees_the_same(&fleet);
    objects::configs_of_the_api_server_are_compared(&fleet);
    objects::what_is_gone_from_the_manifests_is_pruned(&fleet);
    let mut fleet = fleet;
    objects::an_etcd_member_keeps_its_index(&mut fleet);
    objects::a_pool_with_machines_is_not_deleted_by_accident(&fleet);
    silence::an_unreachable_hub_is_logged_once_with_its_address(&mut fleet);
}

fn drift_ends_a_watch_and_is_healed(fleet: &Fleet) {
    fs::write(fleet.root("w1").join("etc/motd"), "by hand").unwrap();
    fleet.wait_for_status("machinist heal w1");
    let watched = fleet.run(&["rollout", "status", "--watch", "--timeout", "60s"]);
    let (text, error) = texts(&watched);
    assert_eq!(watched.status.code(), Some(3), "{text}{error}");
    assert!(text.contains("1 failed") && text.contains("w1: degraded: /etc/motd was "), "{text}");
    assert!(text.contains("stopped until you act"), "{text}");
    let healed = fleet.ok(&["heal", "w1", "--timeout", "120s"]);
    assert!(healed.contains("w1 has what its config says"), "{healed}");
    assert_eq!(fleet.motd("w1"), "one");
    // The verdict before the remedy does not end this one.
    fleet.rolled_out();
}

fn a_held_machine_is_left_alone(fleet: &Fleet) {
    fleet.ok(&["hold", "w1", "--reason", "a disk is replaced"]);
    fleet.apply(&[motd("two")]);
    let watched = fleet.run(&["rollout", "status", "worker", "--watch", "--timeout", "120s"]);
    let (text, error) = texts(&watched);
    assert_eq!(watched.status.code(), Some(3), "{text}{error}{}", fleet.logs());
    let expected = "w1: is held (a disk is replaced); `machinist release w1`";
    assert!(text.contains(expected), "{text}");
    assert_eq!((fleet.motd("w1"), fleet.motd("w2")), ("one".to_owned(), "two".to_owned()));
    // Not even a repair touches it.
    for command in ["heal", "reboot"] {
        let refused = fleet.run(&[command, "w1"]);
        assert_eq!(refused.status.code(), Some(3));
        assert!(texts(&refused).1.contains("machinist release w1"));
    }
    fs::write(fleet.root("w1").join("etc/motd"), "by hand").unwrap();
    fleet.ok(&["annotate", "node", "w1", "machinist.dev/drift=heal"]);
    fleet.wait_for(&["get", "node", "w1", "-o", "json"], "machinist.dev/drifted");
    assert_eq!(fleet.motd("w1"), "by hand");
    fleet.ok(&["release", "w1"]);
    fleet.rolled_out();
    assert_eq!(fleet.motd("w1"), "two");
}

/// The kubeconfig of a viewer.
fn viewer(fleet: &Fleet) -> std::path::PathBuf {
    let token = fleet.ok(&["hub", "token", "--role", "viewer"]);
    let admin = fs::read_to_string(fleet.directory.path().join("data/kubeconfig")).unwrap();
    let mut viewer: Value = serde_saphyr::from_str(&admin).unwrap();
    viewer["users"][0]["user"] = json!({"token": token.trim()});
    let path = fleet.directory.path().join("viewer.json");
    fs::write(&path, viewer.to_string()).unwrap();
    path
}

fn a_viewer_sees_the_same(fleet: &Fleet) {
    let path = viewer(fleet);
    for command in [&["rollout", "status"][..], &["rollout", "status", "--watch"], &["status"]] {
        let output = fleet.run_as(&path, command);
        let (text, error) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {text}{error}");
        assert!(text.contains("worker"), "{command:?}: {text}");
    }
    let refused = fleet.run_as(&path, &["hold", "w1"]);
    assert_eq!(refused.status.code(), Some(1), "{}", texts(&refused).1);
}
