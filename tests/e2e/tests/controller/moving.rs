//! From the hub to a real Kubernetes and back: the pools keep their configs, and no machine notices.

use crate::site::{Site, file};
use machinist_e2e::fleet::Behaviour;
use serde_json::Value;
use std::collections::BTreeMap;

const NODES: &str = "/api/v1/nodes";

/// What each machine has and is to have.
fn machines(site: &Site) -> BTreeMap<String, [Value; 3]> {
    let list = site.home.get(NODES).body;
    let annotations = ["currentConfig", "desiredConfig", "state"]
        .map(|name| format!("machineconfiguration.openshift.io/{name}"));
    let of = |node: &Value| {
        let name = node["metadata"]["name"].as_str().unwrap().to_owned();
        (name, annotations.clone().map(|key| node["metadata"]["annotations"][key].clone()))
    };
    list["items"].as_array().unwrap().iter().map(of).collect()
}

fn target(site: &Site) -> String {
    site.get("mcp", "worker")["spec"]["configuration"]["name"].as_str().unwrap().to_owned()
}

#[test]
fn a_hub_moves_to_a_cluster_and_no_machine_notices() {
    let mut hub = Site::hub();
    hub.apply_example("chrony.yaml");
    // What is generated from the settings of the home needs them in the new one.
    let before = hub.rendered("worker", "");
    hub.apply_example("mirrors.yaml");
    hub.rendered("worker", &before);
    hub.populate(3, Behaviour::default());
    let check = hub.home.machinist(&["adopt", "--check"]).unwrap();
    assert!(check.ok() && check.stdout.contains("No machine would be touched"), "{check:?}");
    let (config, before) = (target(&hub), machines(&hub));
    assert_eq!(before.len(), 3);

    let mut cluster = Site::openshift();
    let paths = [&hub, &cluster].map(|site| site.home.kubeconfig().to_str().unwrap().to_owned());
    let arguments = ["move", "--from", &paths[0], "--to", &paths[1]];
    let dry = hub.home.machinist(&[&arguments[..], &["--dry-run"]].concat()).unwrap();
    assert!(dry.ok() && dry.stdout.contains("would be created"), "{dry:?}");
    assert_eq!(machines(&cluster).len(), 0, "nothing is written");
    let moved = hub.home.machinist(&arguments).unwrap();
    assert!(moved.ok(), "{moved:?}");
    cluster.watch();
    assert_eq!((target(&cluster), machines(&cluster)), (config.clone(), before.clone()));
    cluster.updated("worker");
    let owner = &cluster.get("mc", "99-worker-generated-registries")["metadata"]["ownerReferences"];
    let image = cluster.get("image.config.openshift.io", "cluster");
    assert_eq!(owner[0]["uid"], image["metadata"]["uid"], "{owner}");
    let status = &cluster.get("mcp", "worker")["status"];
    assert_eq!(status["updatedMachineCount"], 3, "{status}");
    assert_eq!(cluster.get("mcp", "worker")["spec"]["paused"], false);
    // Again: everything is there already.
    let again = hub.home.machinist(&[&arguments[..], &["-o", "json"]].concat()).unwrap();
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["problems"].as_array().map(Vec::len), Some(0), "{again}");
    assert_eq!((target(&cluster), machines(&cluster)), (config.clone(), before));
    cluster.nothing_was_broken();

    // And back, into a hub that is new.
    let mut home = Site::hub();
    let path = home.home.kubeconfig().to_str().unwrap().to_owned();
    let back = home.home.machinist(&["move", "--from", &paths[1], "--to", &path]).unwrap();
    assert!(back.ok(), "{back:?}");
    home.watch();
    assert_eq!((target(&home), machines(&home)), (config, machines(&cluster)));
    home.updated("worker");
    home.nothing_was_broken();

    // A source that somebody changed while no controller looked is named, with the file and the pool.
    cluster.kill_controller();
    cluster.apply(&file("50-worker-chrony", "worker", "/etc/other", "x"));
    let check = cluster.home.machinist(&["adopt", "--check"]).unwrap();
    assert_eq!(check.code, 3, "{check:?}");
    assert!(check.stdout.contains("worker: would change"), "{check:?}");
    assert!(check.stdout.contains("file /etc/other (from 50-worker-chrony)"), "{check:?}");
    // And what is different in the other home is in the way.
    let refused = hub.home.machinist(&arguments).unwrap();
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stdout.contains("Nothing was written"), "{refused:?}");
}
