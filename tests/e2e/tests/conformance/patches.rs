//! Patches of every type but apply patches, which `server_side_apply` compares.

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

fn json_patch(api_server: &ApiServer) {
    create(api_server, CONFIGS, &config("json-patched"));
    let path = format!("{CONFIGS}/json-patched");
    let patch = json!([
        {"op": "test", "path": "/spec/kernelArguments/0", "value": "a=1"},
        {"op": "add", "path": "/spec/kernelArguments/-", "value": "b=2"},
        {"op": "add", "path": "/metadata/labels", "value": {"x~y/z": "1"}}
    ]);
    let response = api_server.patch(&path, "json-patch+json", &patch);
    assert_eq!(response.code, 422, "an invalid label: {}", response.body);
    let patch = json!([
        {"op": "test", "path": "/spec/kernelArguments/0", "value": "a=1"},
        {"op": "add", "path": "/spec/kernelArguments/-", "value": "b=2"},
    ]);
    let response = api_server.patch(&path, "json-patch+json", &patch);
    assert_eq!(response.code, 200, "{}", response.body);
    assert_eq!(response.body["spec"]["kernelArguments"], json!(["a=1", "b=2"]));
    let patch = json!([{"op": "test", "path": "/spec/fips", "value": true}]);
    let response = api_server.patch(&path, "json-patch+json", &patch);
    assert_eq!(
        (response.code, &response.body["reason"]),
        (422, &json!("Invalid")),
        "{}",
        response.body
    );
    let response = api_server.patch(&path, "json-patch+json", &json!({"not": "a list"}));
    assert_eq!(response.code, 400, "{}", response.body);
}

fn merge_patch(api_server: &ApiServer) {
    create(api_server, POOLS, &pool("merge-patched"));
    let path = format!("{POOLS}/merge-patched");
    let patch = json!({"spec": {"paused": true, "maxUnavailable": "10%"}, "metadata": {"labels": {"test": null, "new": "1"}}});
    let response = api_server.patch(&path, "merge-patch+json", &patch);
    assert_eq!(response.code, 200, "{}", response.body);
    assert_eq!(
        (&response.body["spec"]["paused"], &response.body["spec"]["maxUnavailable"]),
        (&json!(true), &json!("10%"))
    );
    assert_eq!(response.body["metadata"]["labels"], json!({"new": "1"}));
    assert_eq!(response.body["metadata"]["generation"], 2);
}

fn strategic_patch(api_server: &ApiServer) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "strategic"},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}
    });
    create(api_server, "/api/v1/nodes", &node);
    let path = "/api/v1/nodes/strategic";
    let patch = json!({
        "metadata": {"annotations": {"machineconfiguration.openshift.io/desiredConfig": "rendered-worker-1"}},
        "spec": {"unschedulable": true}
    });
    let response = api_server.patch(path, "strategic-merge-patch+json", &patch);
    assert_eq!(response.code, 200, "{}", response.body);
    assert_eq!(response.body["spec"]["unschedulable"], true);
    // Conditions merge by type.
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    api_server.patch(&format!("{path}/status"), "strategic-merge-patch+json", &ready);
    let pressure = json!({"status": {"conditions": [{"type": "DiskPressure", "status": "False"}]}});
    let response =
        api_server.patch(&format!("{path}/status"), "strategic-merge-patch+json", &pressure);
    assert_eq!(response.code, 200, "{}", response.body);
    let mut types: Vec<&str> = response.body["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|c| c["type"].as_str())
        .collect();
    types.sort_unstable();
    assert_eq!(types, ["DiskPressure", "Ready"]);
    let remove = json!({"status": {"conditions": [{"$patch": "delete", "type": "DiskPressure"}]}});
    let response =
        api_server.patch(&format!("{path}/status"), "strategic-merge-patch+json", &remove);
    assert_eq!(
        response.body["status"]["conditions"].as_array().unwrap().len(),
        1,
        "{}",
        response.body
    );
}

fn strategic_refused(api_server: &ApiServer) {
    create(api_server, POOLS, &pool("no-strategy"));
    let response =
        api_server.patch(&format!("{POOLS}/no-strategy"), "strategic-merge-patch+json", &json!({}));
    assert_eq!(
        (response.code, &response.body["reason"]),
        (415, &json!("UnsupportedMediaType")),
        "{}",
        response.body
    );
}

fn status_patch(api_server: &ApiServer) {
    create(api_server, POOLS, &pool("status-patched"));
    let patch = json!({"status": {"machineCount": 2}, "spec": {"paused": true}});
    let response =
        api_server.patch(&format!("{POOLS}/status-patched/status"), "merge-patch+json", &patch);
    assert_eq!(response.code, 200, "{}", response.body);
    assert_eq!(
        (&response.body["status"]["machineCount"], &response.body["spec"]["paused"]),
        (&json!(2), &json!(false))
    );
}

fn stale_patch(api_server: &ApiServer) {
    let object = create(api_server, POOLS, &pool("stale-patch"));
    let path = format!("{POOLS}/stale-patch");
    let patch = json!({"metadata": {"resourceVersion": object["metadata"]["resourceVersion"]}, "spec": {"paused": true}});
    assert_eq!(api_server.patch(&path, "merge-patch+json", &patch).code, 200);
    let patch = json!({"metadata": {"resourceVersion": object["metadata"]["resourceVersion"]}, "spec": {"paused": false}});
    assert_eq!(api_server.patch(&path, "merge-patch+json", &patch).code, 409);
}

fn missing(api_server: &ApiServer) {
    assert_eq!(
        api_server.patch(&format!("{POOLS}/nobody"), "merge-patch+json", &json!({})).code,
        404
    );
}

fn unknown_type(api_server: &ApiServer) {
    create(api_server, POOLS, &pool("odd-patch"));
    let response = api_server.patch(&format!("{POOLS}/odd-patch"), "odd-patch+json", &json!({}));
    assert_eq!(response.code, 415, "{}", response.body);
}
