//! One changed file without a reboot, from the moment a watch shows the desired config to the moment it shows Done.

use crate::daemon::fixture::{ANNOTATION_PREFIX, file, files};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use machinist_e2e::{ApiServer, Lab, binary, block_on, measurements, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::pin::pin;
use std::process::Command;
use std::time::{Duration, Instant};

const CHANGES: usize = 20;
const BUDGET: Duration = Duration::from_millis(100);
const GROUP: &str = "/apis/machineconfiguration.openshift.io/v1";

/// Sets the machine's desired config, and returns the time until it reports Done.
async fn change(nodes: &Api<Node>, config: &str) -> anyhow::Result<Duration> {
    let now = nodes.get("one").await?;
    let version = now.metadata.resource_version.unwrap_or_default();
    let only = WatchParams::default().fields("metadata.name=one").timeout(60);
    let mut events = pin!(nodes.watch(&only, &version).await?);
    let desired = json!({"metadata": {"annotations": {format!("{ANNOTATION_PREFIX}/desiredConfig"): config}}});
    nodes.patch("one", &PatchParams::default(), &Patch::Merge(desired)).await?;
    let mut seen = None;
    while let Some(event) = events.try_next().await? {
        let WatchEvent::Modified(node) = event else { continue };
        let annotations = node.metadata.annotations.unwrap_or_default();
        let says = |key: &str, value: &str| {
            annotations
                .get(&format!("{ANNOTATION_PREFIX}/{key}"))
                .is_some_and(|found| found == value)
        };
        let since = says("desiredConfig", config).then(|| *seen.get_or_insert_with(Instant::now));
        if let Some(since) =
            since.filter(|_| says("currentConfig", config) && says("state", "Done"))
        {
            return Ok(since.elapsed());
        }
    }
    anyhow::bail!("the machine does not say that it has {config}")
}

#[test]
#[ignore = "benchmark: make bench"]
fn one_changed_file_takes_a_tenth_of_a_second_at_most() {
    let api_server = ApiServer::hub().unwrap();
    let lab = Lab::on_disk().unwrap();
    let root = lab.create_dir("root").unwrap();
    fs::create_dir_all(root.join("etc")).unwrap();
    // Only this test sets the desired config, and a file change needs no action.
    let paused = json!({"spec": {"paused": true}});
    let pool = format!("{GROUP}/machineconfigpools/worker");
    assert_eq!(api_server.patch(&pool, "merge-patch+json", &paused).code, 200);
    let free = json!([{"path": "/etc", "actions": [{"type": "None"}]}]);
    let policy = json!({
        "apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": {"files": free}},
    });
    // The hub's controller may have created it.
    let settings = "/apis/operator.openshift.io/v1/machineconfigurations";
    api_server.post(settings, &policy);
    let policy = json!({"spec": policy["spec"]});
    let path = format!("{settings}/cluster");
    assert_eq!(api_server.patch(&path, "merge-patch+json", &policy).code, 200);
    for name in ["even", "odd"] {
        let mut config: Value = files(&[file("/etc/word", name), file("/etc/other", "other")]);
        config["ignition"] = json!({"version": "3.5.0"});
        let config = json!({
            "apiVersion": format!("{ANNOTATION_PREFIX}/v1"), "kind": "MachineConfig",
            "metadata": {"name": name}, "spec": {"config": config},
        });
        assert_eq!(api_server.post(&format!("{GROUP}/machineconfigs"), &config).code, 201);
    }
    let mut daemon = Command::new(binary::machinist_binary().unwrap());
    daemon.args(["daemon", "start", "--node-name", "one", "--register", "--root"]).arg(&root);
    daemon.args(["--label", "node-role.kubernetes.io/worker=", "--kubeconfig"]);
    daemon.arg(api_server.kubeconfig());
    let mut process = lab.spawn("daemon", &daemon).unwrap();
    let nodes: Api<Node> = Api::all(api_server.client());
    wait_for("the machine to be done", || {
        process.check_alive()?;
        let node = block_on(nodes.get("one"))?;
        let annotations = node.metadata.annotations.unwrap_or_default();
        Ok(annotations
            .get(&format!("{ANNOTATION_PREFIX}/state"))
            .is_some_and(|state| state == "Done"))
    })
    .unwrap();
    let mut took: Vec<Duration> = (0..CHANGES)
        .map(|number| {
            let config = ["even", "odd"][number % 2];
            let took = block_on(change(&nodes, config)).unwrap();
            assert_eq!(fs::read_to_string(root.join("etc/word")).unwrap(), config);
            took
        })
        .collect();
    took.sort();
    let (middle, last) = (took[CHANGES / 2], took[CHANGES - 1]);
    println!("one changed file: {middle:?} in the middle, {last:?} at worst, of {CHANGES}");
    measurements::record("daemon-one-file", format!("{middle:?} (worst {last:?})")).unwrap();
    assert!(middle <= BUDGET, "{took:?}");
}
