//! A hub with two pools, two machines and their configs.
use http_body_util::BodyExt as _;
use machinist::up::initial_objects;
use machinist_hub::auth::{CONTROLLER_GROUP, UserInfo, VIEWER_GROUP};
use machinist_hub::store::{Store, StoreOptions};
use machinist_hub::{Hub, HubConfig, WriteRate, WriteRates};
use serde_json::{Value, json};

pub(super) const GROUP: &str = "/apis/machineconfiguration.openshift.io/v1";
pub(super) const SECRET: &str = "data:,SECRET-CONTENT";

pub(super) fn controller() -> UserInfo {
    UserInfo::new("machinist:controller", [CONTROLLER_GROUP.to_owned()])
}

pub(super) fn viewer() -> UserInfo {
    UserInfo::new("machinist:token:v", [VIEWER_GROUP.to_owned()])
}

const UNLIMITED: WriteRate = WriteRate { per_second: 1e9, burst: 1e9 };

/// A running hub without a controller.
pub(super) async fn start() -> Hub {
    let config = HubConfig {
        crds: initial_objects::crd_objects().unwrap(),
        rules: initial_objects::machine_rules(),
        namespaces: initial_objects::namespaces(),
        hidden_from_viewers: initial_objects::hidden_from_viewers(),
        viewer_redactions: initial_objects::viewer_redactions(),
        reserved_node_names: initial_objects::reserved_node_names(),
        // The table asks thousands of questions, and refused writes count.
        write_rates: WriteRates { machine: UNLIMITED, bootstrap: UNLIMITED },
        ..HubConfig::default()
    };
    let hub = Hub::start(Store::in_memory(StoreOptions::default()), config).await.unwrap();
    for object in initial_objects::objects() {
        hub.ensure_object(&object).await.unwrap();
    }
    for (pool, machine) in [("worker", "w1"), ("master", "m1")] {
        // The garbage collector removes what an unknown owner owns.
        let path = format!("{GROUP}/machineconfigpools/{pool}");
        let owner = request(&hub, UserInfo::admin(), "GET", &path, Value::Null).await.1;
        let owner: Value = serde_json::from_str(&owner).unwrap();
        let config = machine_config(&format!("rendered-{pool}-1"), Some(&owner));
        create(&hub, &format!("{GROUP}/machineconfigs"), config).await;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {
            "name": machine, "labels": {format!("node-role.kubernetes.io/{pool}"): ""},
        }});
        create(&hub, "/api/v1/nodes", node).await;
    }
    create(&hub, &format!("{GROUP}/machineconfigs"), machine_config("99-worker-motd", None)).await;
    hub
}

/// A MachineConfig with contents that nobody else may see, owned by a pool if it is rendered.
pub(super) fn machine_config(name: &str, pool: Option<&Value>) -> Value {
    let owners: Vec<Value> = pool
        .iter()
        .map(|pool| {
            json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "name": pool["metadata"]["name"], "uid": pool["metadata"]["uid"],
            })
        })
        .collect();
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": {"config": {
            "ignition": {"version": "3.4.0"},
            "storage": {"files": [{"path": "/etc/secret", "contents": {"source": SECRET}}]},
            "systemd": {"units": [{"name": "a.service", "contents": SECRET}]},
            "passwd": {"users": [{"name": "core", "passwordHash": SECRET}]},
        }},
    })
}

pub(super) async fn create(hub: &Hub, path: &str, object: Value) {
    let (code, body) = request(hub, UserInfo::admin(), "POST", path, object).await;
    assert_eq!(code, 201, "{path}: {body}");
}

/// Sends a request as a user and returns code and text of the response.
pub(super) async fn request(
    hub: &Hub,
    user: UserInfo,
    method: &str,
    path: &str,
    body: Value,
) -> (u16, String) {
    request_as(hub, user, method, path, body, "application/json").await
}

/// A request with a JSON body, or without one. A patch with a field manager is an apply.
pub(super) fn json_request(
    method: &str,
    path: &str,
    body: &Value,
) -> http::Request<kube::client::Body> {
    let content = match method {
        "PATCH" if path.contains("fieldManager=") => "application/apply-patch+yaml",
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content)
        .body(kube::client::Body::from(body.into_bytes()))
        .unwrap()
}

/// Sends a request that accepts a media type.
pub(super) async fn request_as(
    hub: &Hub,
    user: UserInfo,
    method: &str,
    path: &str,
    body: Value,
    accept: &str,
) -> (u16, String) {
    let content = json_request(method, path, &body).headers()["content-type"].clone();
    send(hub, user, method, path, body, content.to_str().unwrap(), accept).await
}

/// Sends a request with a body of a media type.
pub(super) async fn send(
    hub: &Hub,
    user: UserInfo,
    method: &str,
    path: &str,
    body: Value,
    content: &str,
    accept: &str,
) -> (u16, String) {
    let mut request = json_request(method, path, &body);
    request.headers_mut().insert("content-type", content.parse().unwrap());
    request.headers_mut().insert("accept", accept.parse().unwrap());
    let client = kube::Client::new(hub.router_as(user), "default");
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&bytes).into_owned())
}
