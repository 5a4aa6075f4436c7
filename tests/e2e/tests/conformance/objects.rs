//! Creating, changing and deleting objects: metadata, generations, conflicts, finalizers.

use super::ConformanceCheck;
use super::api_server::ApiServer;
use serde_json::{Value, json};

pub const CHECKS: &[ConformanceCheck] = &[
    ("an object is created with its metadata", created),
    ("generateName gives a name", generated_name),
    ("a stale update is a conflict", stale_update),
    ("generation counts changes of the spec", generations),
    ("status and spec are written apart", status_subresource),
    ("a dry run changes nothing", dry_run),
    ("finalizers hold a deletion", finalizers),
    ("a deletion has preconditions", preconditions),
    ("a collection is deleted by label", delete_collection),
    ("defaults are filled in", defaults),
    ("uid and creation time cannot be changed", immutable_metadata),
    ("an update that changes nothing keeps the resourceVersion", unchanged_update),
];

pub const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
pub const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";

pub fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name, "labels": {"test": "conformance"}},
        "spec": {"paused": false, "nodeSelector": {"matchLabels": {"role": name}}}
    })
}

pub fn config(name: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name}, "spec": {"kernelArguments": ["a=1"]}
    })
}

/// Creates an object and returns it as stored.
pub fn create(api_server: &ApiServer, path: &str, object: &Value) -> Value {
    let response = api_server.post(path, object);
    assert_eq!(response.code, 201, "{}", response.body);
    response.body
}

fn created(api_server: &ApiServer) {
    let object = create(api_server, POOLS, &pool("created"));
    let metadata = &object["metadata"];
    assert_eq!(metadata["generation"], 1);
    assert!(metadata["uid"].as_str().is_some_and(|uid| uid.len() == 36), "{metadata}");
    assert!(metadata["creationTimestamp"].as_str().is_some_and(|time| time.ends_with('Z')));
    assert!(metadata["resourceVersion"].as_str().is_some_and(|v| v.parse::<u64>().is_ok()));
    let read = api_server.get(&format!("{POOLS}/created"));
    assert_eq!(read.code, 200);
    assert_eq!(read.body["spec"], pool("created")["spec"]);
    assert_eq!(read.body["metadata"]["uid"], metadata["uid"]);
}

fn generated_name(api_server: &ApiServer) {
    let mut object = config("x");
    object["metadata"] = json!({"generateName": "made-up-"});
    let name = create(api_server, CONFIGS, &object)["metadata"]["name"].clone();
    let name = name.as_str().unwrap();
    assert!(name.starts_with("made-up-") && name.len() == "made-up-".len() + 5, "{name}");
}

fn stale_update(api_server: &ApiServer) {
    let mut object = create(api_server, POOLS, &pool("stale"));
    object["spec"]["paused"] = json!(true);
    assert_eq!(api_server.put(&format!("{POOLS}/stale"), &object).code, 200);
    let response = api_server.put(&format!("{POOLS}/stale"), &object);
    assert_eq!((response.code, &response.body["reason"]), (409, &json!("Conflict")));
    assert_eq!(response.body["details"]["name"], "stale");
    let message = response.body["message"].as_str().unwrap();
    assert!(message.contains("the object has been modified"), "{message}");
}

fn generations(api_server: &ApiServer) {
    let mut object = create(api_server, POOLS, &pool("generations"));
    let path = format!("{POOLS}/generations");
    object["metadata"]["labels"]["more"] = json!("x");
    object = api_server.put(&path, &object).body;
    assert_eq!(object["metadata"]["generation"], 1, "labels are not the spec");
    object["spec"]["paused"] = json!(true);
    object = api_server.put(&path, &object).body;
    assert_eq!(object["metadata"]["generation"], 2);
    object["status"] = json!({"machineCount": 3});
    object = api_server.put(&format!("{path}/status"), &object).body;
    assert_eq!(object["metadata"]["generation"], 2, "status is not the spec");
}

fn status_subresource(api_server: &ApiServer) {
    let mut object = pool("apart");
    object["status"] = json!({"machineCount": 9});
    let mut object = create(api_server, POOLS, &object);
    assert!(object.get("status").is_none(), "status is not written with the object: {object}");
    let path = format!("{POOLS}/apart");
    object["status"] = json!({"machineCount": 3});
    object["spec"]["paused"] = json!(true);
    let stored = api_server.put(&format!("{path}/status"), &object).body;
    assert_eq!(stored["status"]["machineCount"], 3);
    assert_eq!(stored["spec"]["paused"], false, "the spec is not written with the status");
    let mut object = stored;
    object["spec"]["paused"] = json!(true);
    object["status"] = json!({});
    let stored = api_server.put(&path, &object).body;
    assert_eq!(
        (&stored["spec"]["paused"], &stored["status"]["machineCount"]),
        (&json!(true), &json!(3))
    );
}

fn dry_run(api_server: &ApiServer) {
    let response = api_server.post(&format!("{POOLS}?dryRun=All"), &pool("dry"));
    assert_eq!(response.code, 201, "{}", response.body);
    assert_eq!(api_server.get(&format!("{POOLS}/dry")).code, 404);
    create(api_server, POOLS, &pool("dry"));
    assert_eq!(api_server.delete(&format!("{POOLS}/dry?dryRun=All"), &Value::Null).code, 200);
    assert_eq!(api_server.get(&format!("{POOLS}/dry")).code, 200);
    let response = api_server.post(&format!("{POOLS}?dryRun=Some"), &pool("dry2"));
    assert_eq!(response.code, 422, "{}", response.body);
}

fn finalizers(api_server: &ApiServer) {
    let mut object = config("finalized");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(api_server, CONFIGS, &object);
    let path = format!("{CONFIGS}/finalized");
    assert_eq!(api_server.delete(&path, &Value::Null).code, 200);
    let held = api_server.get(&path);
    assert_eq!(held.code, 200);
    assert!(held.body["metadata"]["deletionTimestamp"].is_string(), "{}", held.body);
    assert_eq!(held.body["metadata"]["deletionGracePeriodSeconds"], 0);
    let response =
        api_server.patch(&path, "merge-patch+json", &json!({"metadata": {"finalizers": null}}));
    assert_eq!(response.code, 200, "{}", response.body);
    assert_eq!(api_server.get(&path).code, 404);
}

fn preconditions(api_server: &ApiServer) {
    let object = create(api_server, CONFIGS, &config("precious"));
    let path = format!("{CONFIGS}/precious");
    let wrong = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}});
    assert_eq!(api_server.delete(&path, &wrong).code, 409);
    let stale = json!({"preconditions": {"resourceVersion": "1"}});
    assert_eq!(api_server.delete(&path, &stale).code, 409);
    let right = json!({"preconditions": {"uid": object["metadata"]["uid"]}});
    let response = api_server.delete(&path, &right);
    assert_eq!(response.code, 200, "{}", response.body);
    assert_eq!(
        (&response.body["kind"], &response.body["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(response.body["details"]["name"], "precious");
}

fn delete_collection(api_server: &ApiServer) {
    for name in ["many-1", "many-2", "other"] {
        let mut object = config(name);
        object["metadata"]["labels"] = json!({"group": name.split('-').next()});
        create(api_server, CONFIGS, &object);
    }
    let response =
        api_server.delete(&format!("{CONFIGS}?labelSelector=group%3Dmany"), &Value::Null);
    assert_eq!(response.code, 200, "{}", response.body);
    assert_eq!(api_server.get(&format!("{CONFIGS}/many-1")).code, 404);
    assert_eq!(api_server.get(&format!("{CONFIGS}/other")).code, 200);
}

fn defaults(api_server: &ApiServer) {
    let configs = "/apis/machineconfiguration.openshift.io/v1/machineosconfigs";
    let object = create(
        api_server,
        configs,
        &json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig",
            "metadata": {"name": "worker"},
            "spec": {
                "machineConfigPool": {"name": "worker"}, "imageBuilder": {"imageBuilderType": "Job"},
                "renderedImagePushSecret": {"name": "push"}, "renderedImagePushSpec": "registry.example.com/os/image:latest",
                "containerFile": [{"content": "FROM x"}]
            }
        }),
    );
    assert_eq!(object["spec"]["containerFile"][0]["containerfileArch"], "NoArch");
}

fn immutable_metadata(api_server: &ApiServer) {
    let mut object = create(api_server, POOLS, &pool("fixed"));
    let (uid, created) =
        (object["metadata"]["uid"].clone(), object["metadata"]["creationTimestamp"].clone());
    object["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    let stored = api_server.put(&format!("{POOLS}/fixed"), &object).body;
    assert_eq!(stored["metadata"]["creationTimestamp"], created);
    object = stored;
    object["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let response = api_server.put(&format!("{POOLS}/fixed"), &object);
    assert_eq!(response.code, 409, "{}", response.body);
    assert_eq!(api_server.get(&format!("{POOLS}/fixed")).body["metadata"]["uid"], uid);
}

fn unchanged_update(api_server: &ApiServer) {
    let object = create(api_server, POOLS, &pool("unchanged"));
    let stored = api_server.put(&format!("{POOLS}/unchanged"), &object).body;
    assert_eq!(stored["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"]);
}
