//! Patches of every type. (Server-side apply is refused by the hub, and said so in the docs.)

use super::ConformanceCheck;
use super::api_server::ApiServer;
use super::objects::{CONFIGS, POOLS, config, create, pool};
use serde_json::json;

pub const CHECKS: &[ConformanceCheck] = &[
    ("a JSON patch", json_patch),
    ("a merge patch", merge_patch),
    ("a strategic merge patch of a node", strategic_patch),
    ("a strategic merge patch of our kinds is refused", strategic_refused),
    ("a patch of the status", status_patch),
    ("a patch with a stale resourceVersion is a conflict", stale_patch),
    ("a patch of something missing", missing),
    ("a patch type nobody knows", unknown_type),
];

fn json_patch(home: &ApiServer) {
    create(home, CONFIGS, &config("json-patched"));
    let path = format!("{CONFIGS}/json-patched");
    let patch = json!([
        {"op": "test", "path": "/spec/kernelArguments/0", "value": "a=1"},
        {"op": "add", "path": "/spec/kernelArguments/-", "value": "b=2"},
        {"op": "add", "path": "/metadata/labels", "value": {"x~y/z": "1"}}
    ]);
    let answer = home.patch(&path, "json-patch+json", &patch);
    assert_eq!(answer.code, 422, "an invalid label: {}", answer.body);
    let patch = json!([
        {"op": "test", "path": "/spec/kernelArguments/0", "value": "a=1"},
        {"op": "add", "path": "/spec/kernelArguments/-", "value": "b=2"},
    ]);
    let answer = home.patch(&path, "json-patch+json", &patch);
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(answer.body["spec"]["kernelArguments"], json!(["a=1", "b=2"]));
    let patch = json!([{"op": "test", "path": "/spec/fips", "value": true}]);
    let answer = home.patch(&path, "json-patch+json", &patch);
    assert_eq!((answer.code, &answer.body["reason"]), (422, &json!("Invalid")), "{}", answer.body);
    let answer = home.patch(&path, "json-patch+json", &json!({"not": "a list"}));
    assert_eq!(answer.code, 400, "{}", answer.body);
}

fn merge_patch(home: &ApiServer) {
    create(home, POOLS, &pool("merge-patched"));
    let path = format!("{POOLS}/merge-patched");
    let patch = json!({"spec": {"paused": true, "maxUnavailable": "10%"}, "metadata": {"labels": {"test": null, "new": "1"}}});
    let answer = home.patch(&path, "merge-patch+json", &patch);
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(
        (&answer.body["spec"]["paused"], &answer.body["spec"]["maxUnavailable"]),
        (&json!(true), &json!("10%"))
    );
    assert_eq!(answer.body["metadata"]["labels"], json!({"new": "1"}));
    assert_eq!(answer.body["metadata"]["generation"], 2);
}

fn strategic_patch(home: &ApiServer) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "strategic"},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}
    });
    create(home, "/api/v1/nodes", &node);
    let path = "/api/v1/nodes/strategic";
    let patch = json!({
        "metadata": {"annotations": {"machineconfiguration.openshift.io/desiredConfig": "rendered-worker-1"}},
        "spec": {"unschedulable": true}
    });
    let answer = home.patch(path, "strategic-merge-patch+json", &patch);
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(answer.body["spec"]["unschedulable"], true);
    // Conditions merge by type.
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    home.patch(&format!("{path}/status"), "strategic-merge-patch+json", &ready);
    let pressure = json!({"status": {"conditions": [{"type": "DiskPressure", "status": "False"}]}});
    let answer = home.patch(&format!("{path}/status"), "strategic-merge-patch+json", &pressure);
    assert_eq!(answer.code, 200, "{}", answer.body);
    let mut types: Vec<&str> = answer.body["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|c| c["type"].as_str())
        .collect();
    types.sort_unstable();
    assert_eq!(types, ["DiskPressure", "Ready"]);
    let remove = json!({"status": {"conditions": [{"$patch": "delete", "type": "DiskPressure"}]}});
    let answer = home.patch(&format!("{path}/status"), "strategic-merge-patch+json", &remove);
    assert_eq!(answer.body["status"]["conditions"].as_array().unwrap().len(), 1, "{}", answer.body);
}

fn strategic_refused(home: &ApiServer) {
    create(home, POOLS, &pool("no-strategy"));
    let answer =
        home.patch(&format!("{POOLS}/no-strategy"), "strategic-merge-patch+json", &json!({}));
    assert_eq!(
        (answer.code, &answer.body["reason"]),
        (415, &json!("UnsupportedMediaType")),
        "{}",
        answer.body
    );
}

fn status_patch(home: &ApiServer) {
    create(home, POOLS, &pool("status-patched"));
    let patch = json!({"status": {"machineCount": 2}, "spec": {"paused": true}});
    let answer = home.patch(&format!("{POOLS}/status-patched/status"), "merge-patch+json", &patch);
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(
        (&answer.body["status"]["machineCount"], &answer.body["spec"]["paused"]),
        (&json!(2), &json!(false))
    );
}

fn stale_patch(home: &ApiServer) {
    let object = create(home, POOLS, &pool("stale-patch"));
    let path = format!("{POOLS}/stale-patch");
    let patch = json!({"metadata": {"resourceVersion": object["metadata"]["resourceVersion"]}, "spec": {"paused": true}});
    assert_eq!(home.patch(&path, "merge-patch+json", &patch).code, 200);
    let patch = json!({"metadata": {"resourceVersion": object["metadata"]["resourceVersion"]}, "spec": {"paused": false}});
    assert_eq!(home.patch(&path, "merge-patch+json", &patch).code, 409);
}

fn missing(home: &ApiServer) {
    assert_eq!(home.patch(&format!("{POOLS}/nobody"), "merge-patch+json", &json!({})).code, 404);
}

fn unknown_type(home: &ApiServer) {
    create(home, POOLS, &pool("odd-patch"));
    let answer = home.patch(&format!("{POOLS}/odd-patch"), "odd-patch+json", &json!({}));
    assert_eq!(answer.code, 415, "{}", answer.body);
}
