//! What commands do with the objects of the API server: compare, prune, delete.

use std::fs;

use serde_json::{Value, json};

use super::fleet::{Fleet, texts};

fn config(name: &str, pool: &str, path: &str, contents: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {
            "name": name,
            "labels": {"machineconfiguration.openshift.io/role": pool, "team": "a"},
            "annotations": {"machinist.dev/on-change": "none"},
        },
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [{
            "path": path, "mode": 420, "contents": {"source": format!("data:,{contents}")},
        }]}}},
    })
}

pub(super) fn configs_of_the_api_server_are_compared(fleet: &Fleet) {
    // The machines have what they get.
    let same = fleet.ok(&["diff", "--pool", "worker"]);
    assert!(same.starts_with("No differences: the machines of worker have rendered-"), "{same}");
    let names = fleet.ok(&["diff", "50-motd", "60-key"]);
    assert!(names.contains("- file /etc/motd") && names.contains("+ file /etc/app.key"), "{names}");
    let unknown = texts(&fleet.run(&["diff", "50-motd", "no-such"])).1;
    assert!(unknown.contains("no-such: there is neither such a file nor such"), "{unknown}");
    let unknown = texts(&fleet.run(&["diff", "--pool", "no-such"])).1;
    assert!(unknown.contains("MachineConfigPool no-such"), "{unknown}");
    assert_eq!(fleet.run(&["diff"]).status.code(), Some(2));
    assert_eq!(fleet.run(&["diff", "a", "--pool", "b"]).status.code(), Some(2));
}

pub(super) fn what_is_gone_from_the_manifests_is_pruned(fleet: &Fleet) {
    let directory = fleet.directory.path().join("manifests");
    fs::create_dir(&directory).unwrap();
    let write = |config: &Value| {
        let name = config["metadata"]["name"].as_str().unwrap();
        fs::write(directory.join(format!("{name}.json")), config.to_string()).unwrap();
    };
    write(&config("70-stays", "worker", "/etc/stays", "1"));
    write(&config("71-goes", "worker", "/etc/goes", "1"));
    let path = directory.to_str().unwrap();
    fleet.ok(&["apply", "-f", path]);
    fs::remove_file(directory.join("71-goes.json")).unwrap();
    // Without a selection, everything that was ever applied would go.
    assert_eq!(fleet.run(&["apply", "-f", path, "--prune"]).status.code(), Some(2));
    let dry = fleet.ok(&["apply", "-f", path, "--prune", "-l", "team=a", "--dry-run"]);
    assert!(dry.contains("71-goes pruned (server dry run)"), "{dry}");
    fleet.ok(&["get", "mc", "71-goes"]);
    let pruned = fleet.ok(&["apply", "-f", path, "--prune", "-l", "team=a"]);
    assert!(pruned.contains("71-goes pruned") && !pruned.contains("50-motd"), "{pruned}");
    let left = fleet.ok(&["get", "mc"]);
    assert!(left.contains("70-stays") && left.contains("50-motd"), "{left}");
    assert!(!left.contains("71-goes"), "{left}");
    fleet.rolled_out();
}

/// The server notes the index on a machine's first boot; here the note is written by hand.
pub(super) fn an_etcd_member_keeps_its_index(fleet: &mut Fleet) {
    let token = fleet.ok(&["hub", "token", "--role", "bootstrap", "--pool", "master"]);
    fleet.join("m1", token.trim(), "master");
    let note = fleet.root("m1").join("etc/machine-config-daemon/machinist-etcd-index");
    fs::create_dir_all(note.parent().unwrap()).unwrap();
    fs::write(&note, "2\n").unwrap();
    fleet.start_daemon("m1");
    let member = |text: &str| config("50-member", "master", "/etc/member", text);
    let file = fleet.root("m1").join("etc/member");
    for (template, expected) in [
        ("member=%7B%7B.etcd_index%7D%7D", "member=2"),
        ("again=%20%7B%7B-%20.etcd_index%20-%7D%7D%20", "again=2"),
    ] {
        fleet.apply(&[member(template)]);
        fleet.rolled_out();
        assert_eq!(fs::read_to_string(&file).unwrap(), expected, "{}", fleet.logs());
        let same = fleet.ok(&["diff", "--live", "m1", "--timeout", "120s"]);
        assert!(same.starts_with("m1 has what"), "{same}");
    }
    // What others change is healed to the same.
    fs::write(&file, "again={{- .etcd_index -}}").unwrap();
    fleet.wait_for_status("machinist heal m1");
    fleet.ok(&["heal", "m1", "--timeout", "120s"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "again=2");
}

pub(super) fn a_pool_with_machines_is_not_deleted_by_accident(fleet: &Fleet) {
    let refused = fleet.run(&["delete", "mcp", "worker"]);
    assert_eq!(refused.status.code(), Some(3));
    let error = texts(&refused).1;
    assert!(error.contains("pool worker has 2 machines") && error.contains("--yes"), "{error}");
    fleet.ok(&["get", "mcp", "worker"]);
    // Its history stays.
    let rendered =
        |list: &str| list.lines().filter(|it| it.starts_with("rendered-worker-")).count();
    let before = rendered(&fleet.ok(&["get", "mc"]));
    assert!(before > 1);
    fleet.ok(&["delete", "mcp", "worker", "--yes", "--timeout", "120s"]);
    assert_eq!(rendered(&fleet.ok(&["get", "mc"])), before);
}
