//! Details: how numbers are stored, how a bad status is refused, updates that create, and `kubectl get -w`.

use super::ConformanceCheck;
use super::api_server::ApiServer;
use super::objects::{CONFIGS, POOLS, config, create, pool};
use machinist_e2e::environment;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

pub const CHECKS: &[ConformanceCheck] = &[
    ("whole numbers are kept as whole numbers", numbers),
    ("a bad status is Invalid, with its causes", bad_status),
    ("an update creates a lease and nothing else", create_on_update),
    ("kubectl get -w", kubectl_watch),
];

fn numbers(api_server: &ApiServer) {
    let mut object = config("numbers");
    object["spec"]["config"] = json!({"ignition": {"version": "3.4.0"}, "whole": 2.0, "part": 2.5});
    let kept = create(api_server, CONFIGS, &object);
    assert_eq!(kept["spec"]["config"]["whole"], json!(2), "{kept}");
    assert_eq!(kept["spec"]["config"]["part"], json!(2.5), "{kept}");
    let read = api_server.get(&format!("{CONFIGS}/numbers")).body;
    assert_eq!(read["spec"], kept["spec"]);
    let patch = json!({"spec": {"config": {"whole": 3.0}}});
    let kept = api_server.patch(&format!("{CONFIGS}/numbers"), "merge-patch+json", &patch).body;
    assert_eq!(kept["spec"]["config"]["whole"], json!(3), "{kept}");
}

fn bad_status(api_server: &ApiServer) {
    let mut object = create(api_server, POOLS, &pool("bad-status"));
    object["status"] = json!({"machineCount": "many", "conditions": [{"type": 7}]});
    let response = api_server.put(&format!("{POOLS}/bad-status/status"), &object);
    assert_eq!(
        (response.code, &response.body["reason"]),
        (422, &json!("Invalid")),
        "{}",
        response.body
    );
    let message = response.body["message"].as_str().unwrap();
    let start = "MachineConfigPool.machineconfiguration.openshift.io \"bad-status\" is invalid: ";
    assert!(message.starts_with(start), "{message}");
    for problem in [
        "status.machineCount: Invalid value: \"string\": machineCount in body must be of type integer: \"string\"",
        "status.conditions[0].type: Invalid value: \"integer\": conditions[0].type in body must be of type string: \"integer\"",
    ] {
        assert!(message.contains(problem), "{message}");
    }
}

fn create_on_update(api_server: &ApiServer) {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "put", "namespace": "default"}, "spec": {"holderIdentity": "me"},
    });
    let response = api_server.put(&format!("{leases}/put"), &lease);
    assert_eq!(response.code, 201, "{}", response.body);
    assert_eq!(response.body["spec"]["holderIdentity"], "me");
    assert!(response.body["metadata"]["uid"].as_str().is_some_and(|uid| uid.len() == 36));
    let response = api_server.put(&format!("{leases}/put"), &lease);
    assert_eq!(response.code, 422, "without a revision it is not changed: {}", response.body);
    let patch = json!({"spec": {"holderIdentity": "you"}});
    assert_eq!(api_server.patch(&format!("{leases}/put"), "merge-patch+json", &patch).code, 200);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "put", "namespace": "default"},
    });
    let response = api_server.put("/api/v1/namespaces/default/configmaps/put", &map);
    assert_eq!(response.code, 404, "{}", response.body);
}

fn kubectl_watch(api_server: &ApiServer) {
    create(api_server, POOLS, &pool("watched"));
    let mut kubectl = Command::new(environment::kubernetes_binary("kubectl").unwrap());
    kubectl.env("KUBECONFIG", api_server.kubeconfig()).env("HOME", api_server.dir());
    // Not by its name: then kubectl drops the first event of its watch, which may be the change.
    kubectl.args([
        "get",
        "machineconfigpools",
        "--field-selector=metadata.name=watched",
        "-w",
        "-o",
        "jsonpath={.spec.paused}{\"\\n\"}",
    ]);
    let mut kubectl = kubectl.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(kubectl.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("false"));
    let paused = json!({"spec": {"paused": true}});
    let response = api_server.patch(&format!("{POOLS}/watched"), "merge-patch+json", &paused);
    assert_eq!(response.code, 200, "{}", response.body);
    // A controller may write the status before the change.
    assert_eq!(lines.find(|line| line != "false").as_deref(), Some("true"));
    api_server.delete(&format!("{POOLS}/watched"), &Value::Null);
    assert_eq!(lines.next().as_deref(), Some("true"), "what was deleted is shown once more");
    kubectl.kill().unwrap();
    kubectl.wait().unwrap();
}
