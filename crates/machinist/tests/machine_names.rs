//! Pools that take machines by their names: the hub and the rollout read the patterns alike, and a machine that chooses
//! its name does not choose its pool.

use std::process::Output;

use kube::api::{Patch, PatchParams, PostParams};
use machinist_core::api::{MachineConfigPool, NodeNamePatterns};
use machinist_hub::auth::pool_names::{NODE_NAMES_ANNOTATION, takes_name};
use serde_json::{Value, json};

use crate::up::{UpProcess, join, machinist, pools};

#[test]
fn the_hub_reads_names_as_the_rollout_does() {
    assert_eq!(
        NODE_NAMES_ANNOTATION,
        machinist_core::api::names::annotation::machinist::NODE_NAMES
    );
    let patterns = ["a", "a*", "*a", "*", "a*b", "a*b*c", "**", "a, b*", "b\n a-1", "*.x,a"];
    let names = ["a", "b", "ab", "abc", "aXc", "a-1", "b-1", "a.x", "x", "", "acb", "abcbc"];
    for pattern in patterns {
        let read = NodeNamePatterns::parse(pattern).unwrap();
        let pool = json!({"metadata": {"annotations": {NODE_NAMES_ANNOTATION: pattern}}});
        for name in names {
            assert_eq!(read.matches(name), takes_name(&pool, name), "{pattern:?} {name:?}");
        }
    }
}

fn pool(names: &str) -> MachineConfigPool {
    let pool: Value = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "edge", "annotations": {NODE_NAMES_ANNOTATION: names}},
        "spec": {"machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}}},
    });
    serde_json::from_value(pool).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_does_not_choose_its_pool_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let up = UpProcess::start(&data, &[]);
    let api = pools(&data).await;
    api.create(&PostParams::default(), &pool("edge-*")).await.unwrap();
    let data_text = data.to_str().unwrap();
    let token = |more: &[&str]| {
        let mut arguments = vec!["hub", "token", "--data-dir", data_text, "--role", "bootstrap"];
        arguments.extend(more);
        let output = machinist(&arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let root = |name: &str| directory.path().join(name);
    let denied = "the pool edge takes machines that are named like";
    let check = |output: Output, is_denied: bool| {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), !is_denied, "{stderr}");
        assert_eq!(stderr.contains(denied), is_denied, "{stderr}");
    };
    let worker = token(&[]);
    check(join(&data, &worker, &root("a"), "edge-1", "worker"), true);
    check(join(&data, &token(&["--node-name", "edge-*"]), &root("b"), "edge-1", "worker"), true);
    check(join(&data, &worker, &root("c"), "core-1", "worker"), false);
    check(join(&data, &token(&["--pool", "edge"]), &root("d"), "edge-1", "edge"), false);
    check(join(&data, &token(&["--node-name", "edge-2"]), &root("e"), "edge-2", "worker"), false);
    // What the pool says at the time of the request counts.
    let other = json!({"metadata": {"annotations": {NODE_NAMES_ANNOTATION: "rack-*"}}});
    api.patch("edge", &PatchParams::default(), &Patch::Merge(other)).await.unwrap();
    check(join(&data, &worker, &root("f"), "edge-3", "worker"), false);
    check(join(&data, &worker, &root("g"), "rack-3", "worker"), true);
    up.stop();
}
