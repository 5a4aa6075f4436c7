//! From the hub to a real Kubernetes cluster and back: the pools keep their configs, and no machine changes.

use crate::controller::fixture::{ControllerFixture, file};
use machinist_e2e::fleet::MachineBehaviour;
use serde_json::Value;
use std::collections::BTreeMap;

const NODES: &str = "/api/v1/nodes";

/// The current and desired state of each machine.
fn machines(fixture: &ControllerFixture) -> BTreeMap<String, [Value; 3]> {
    let list = fixture.api_server.get(NODES).body;
    let annotations = ["currentConfig", "desiredConfig", "state"]
        .map(|name| format!("machineconfiguration.openshift.io/{name}"));
    let of = |node: &Value| {
        let name = node["metadata"]["name"].as_str().unwrap().to_owned();
        (name, annotations.clone().map(|key| node["metadata"]["annotations"][key].clone()))
    };
    list["items"].as_array().unwrap().iter().map(of).collect()
}

fn target(fixture: &ControllerFixture) -> String {
    fixture.get("mcp", "worker")["spec"]["configuration"]["name"].as_str().unwrap().to_owned()
}

#[test]
fn a_hub_migrates_to_a_cluster_without_touching_machines() {
    let mut hub = ControllerFixture::hub();
    hub.apply_example("chrony.yaml");
    // The generated configs need the cluster's settings on the new API server too.
    let before = hub.wait_for_new_config("worker", "");
    hub.apply_example("mirrors.yaml");
    hub.wait_for_new_config("worker", &before);
    hub.populate(3, MachineBehaviour::default());
    let check = hub.api_server.machinist(&["adopt", "--check"]).unwrap();
    assert!(check.succeeded() && check.stdout.contains("No machine would change"), "{check:?}");
    let (config, before) = (target(&hub), machines(&hub));
    assert_eq!(before.len(), 3);

    let mut cluster = ControllerFixture::openshift();
    let paths = [&hub, &cluster]
        .map(|fixture| fixture.api_server.kubeconfig().to_str().unwrap().to_owned());
    let arguments = ["migrate", "--from", &paths[0], "--to", &paths[1]];
    let dry = hub.api_server.machinist(&[&arguments[..], &["--dry-run"]].concat()).unwrap();
    assert!(dry.succeeded() && dry.stdout.contains("would be created"), "{dry:?}");
    assert_eq!(machines(&cluster).len(), 0, "nothing is written");
    let moved = hub.api_server.machinist(&arguments).unwrap();
    assert!(moved.succeeded(), "{moved:?}");
    cluster.start_watch_log();
    assert_eq!((target(&cluster), machines(&cluster)), (config.clone(), before.clone()));
    cluster.wait_updated("worker");
    let owner = &cluster.get("mc", "99-worker-generated-registries")["metadata"]["ownerReferences"];
    let image = cluster.get("image.config.openshift.io", "cluster");
    assert_eq!(owner[0]["uid"], image["metadata"]["uid"], "{owner}");
    let status = &cluster.get("mcp", "worker")["status"];
    assert_eq!(status["updatedMachineCount"], 3, "{status}");
    assert_eq!(cluster.get("mcp", "worker")["spec"]["paused"], false);
    // A second run changes nothing.
    let again = hub.api_server.machinist(&[&arguments[..], &["-o", "json"]].concat()).unwrap();
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["problems"].as_array().map(Vec::len), Some(0), "{again}");
    assert_eq!((target(&cluster), machines(&cluster)), (config.clone(), before));
    cluster.assert_no_violations();

    // And back into a new hub.
    let mut api_server = ControllerFixture::hub();
    let path = api_server.api_server.kubeconfig().to_str().unwrap().to_owned();
    let back =
        api_server.api_server.machinist(&["migrate", "--from", &paths[1], "--to", &path]).unwrap();
    assert!(back.succeeded(), "{back:?}");
    api_server.start_watch_log();
    assert_eq!((target(&api_server), machines(&api_server)), (config, machines(&cluster)));
    api_server.wait_updated("worker");
    api_server.assert_no_violations();

    // A source that changed while no controller ran is reported, with the file and the pool.
    cluster.kill_controller();
    cluster.apply(&file("50-worker-chrony", "worker", "/etc/other", "x"));
    let check = cluster.api_server.machinist(&["adopt", "--check"]).unwrap();
    assert_eq!(check.code, 3, "{check:?}");
    assert!(check.stdout.contains("worker: would change"), "{check:?}");
    assert!(check.stdout.contains("file /etc/other (from 50-worker-chrony)"), "{check:?}");
    // And an object that differs on the other API server is a conflict.
    let refused = hub.api_server.machinist(&arguments).unwrap();
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stdout.contains("Nothing was written"), "{refused:?}");
}
