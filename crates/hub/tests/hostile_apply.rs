//! A machine that attacks field management and server-side apply through its own Node: managers without end, large and
//! malformed lists. Others can still read, change and delete the Node, and every request ends soon.

use std::time::{Duration, Instant};

use machinist_hub::auth::{CONTROLLER_GROUP, UserInfo};
use machinist_hub::store::{Store, StoreOptions};
use machinist_hub::{Hub, HubConfig, WriteRate, WriteRates};
use serde_json::{Value, json};

use crate::support::{TestHub, send};

const NODE: &str = "/api/v1/nodes/a";
const NODES_PREFIX: &str = "/core/nodes/";
const NODE_LIMIT: usize = 1 << 20;
/// For one request in a debug build on a busy machine; without a limit it would be minutes.
const MAX_ANSWER: Duration = Duration::from_secs(30);

/// A hub with the Node of machine `a`. The rates have tests of their own.
async fn hub_with_node() -> TestHub {
    let fast = WriteRate { per_second: 1e6, burst: 1e6 };
    let write_rates = WriteRates { machine: fast, bootstrap: fast };
    let config = HubConfig { write_rates, ..HubConfig::default() };
    let hub = Hub::start(Store::in_memory(StoreOptions::default()), config).await.unwrap();
    let hub = TestHub { hub };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
    let (code, _) = as_machine(&hub, "POST", "/api/v1/nodes", "application/json", &node).await;
    assert_eq!(code, 201);
    assert!(stored_bytes(&hub) > 0);
    hub
}

/// The size of all Nodes.
fn stored_bytes(hub: &TestHub) -> usize {
    hub.hub
        .store()
        .list(NODES_PREFIX, None, None)
        .entries
        .iter()
        .map(|entry| entry.value.len())
        .sum()
}

async fn request(
    hub: &TestHub,
    user: UserInfo,
    method: &str,
    path: &str,
    content_type: &str,
    body: &Value,
) -> (u16, Value) {
    let start = Instant::now();
    let headers = [("content-type", content_type)];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let bytes = body.len();
    let (code, response) = send(hub.hub.router_as(user), method, path, &headers, body).await;
    let took = start.elapsed();
    println!("{method} {path} with {bytes} bytes: {code} after {took:.1?}");
    assert!(took < MAX_ANSWER, "{took:?}");
    assert!(code.as_u16() < 500, "{response}");
    (code.as_u16(), response)
}

async fn as_machine(
    hub: &TestHub,
    method: &str,
    path: &str,
    kind: &str,
    body: &Value,
) -> (u16, Value) {
    request(hub, UserInfo::node("a"), method, path, kind, body).await
}

async fn apply(hub: &TestHub, path: &str, manager: &str, body: &Value) -> (u16, Value) {
    let path = format!("{path}?fieldManager={manager}");
    as_machine(hub, "PATCH", &path, "application/apply-patch+yaml", body).await
}

/// What a machine must not be able to prevent: a cordon, a new config, an apply and a delete.
async fn others_can_use_the_node(hub: &TestHub) {
    let merge = "application/merge-patch+json";
    let (admin, controller) =
        (UserInfo::admin(), UserInfo::new("c", [CONTROLLER_GROUP.to_owned()]));
    let cordon = json!({"spec": {"unschedulable": true}});
    let (code, node) = request(hub, admin.clone(), "PATCH", NODE, merge, &cordon).await;
    assert_eq!((code, &node["spec"]["unschedulable"]), (200, &json!(true)));
    let desired = json!({"metadata": {"annotations": {
        "machineconfiguration.openshift.io/desiredConfig": "rendered-worker-0123456789abcdef0123456789abcdef"
    }}});
    assert_eq!(request(hub, controller, "PATCH", NODE, merge, &desired).await.0, 200);
    let applied = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"x": "y"}}});
    let path = format!("{NODE}?fieldManager=admin&force=true");
    let kind = "application/apply-patch+yaml";
    let (code, body) = request(hub, admin.clone(), "PATCH", &path, kind, &applied).await;
    assert_eq!(code, 200, "{body}");
    let (code, _) = request(hub, admin, "DELETE", NODE, merge, &Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(stored_bytes(hub), 0);
}

/// Each manager owns the same 100 annotations with long names: 25 KB of `managedFields` for one small request.
#[tokio::test]
async fn managers_without_end_reach_a_limit_and_keep_nobody_out() {
    let hub = hub_with_node().await;
    let name = |n: usize| format!("{}.example.com/{n:063}", "p".repeat(60));
    let annotations: Value =
        (0..100).map(|n| (name(n), json!("x"))).collect::<serde_json::Map<_, _>>().into();
    let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "annotations": annotations}});
    let mut refused = None;
    for n in 0..400 {
        let (code, response) = apply(&hub, NODE, &format!("{n:0128}"), &body).await;
        let size = stored_bytes(&hub);
        assert!(size <= NODE_LIMIT, "{size}");
        if code != 200 {
            refused = Some((n, code, response));
            break;
        }
    }
    let (managers, code, response) = refused.expect("no limit was reached");
    println!("{managers} managers");
    assert_eq!(code, 413, "{response}");
    assert!(response["message"].as_str().unwrap().contains("limit is 1048576"), "{response}");
    others_can_use_the_node(&hub).await;
}

/// Without `managedFields` that could be dropped.
#[tokio::test]
async fn a_node_that_its_machine_has_filled_can_be_cordoned_and_deleted() {
    let hub = hub_with_node().await;
    let merge = "application/merge-patch+json";
    let fill = async |bytes: usize| {
        let body = json!({
            "metadata": {"managedFields": [{}]}, // nobody owns anything
            "status": {"addresses": [{"type": "x".repeat(bytes), "address": "a"}]},
        });
        as_machine(&hub, "PATCH", &format!("{NODE}/status"), merge, &body).await.0
    };
    let (mut fits, mut too_large) = (0, NODE_LIMIT);
    while too_large - fits > 1 {
        let middle = usize::midpoint(fits, too_large);
        match fill(middle).await {
            200 => fits = middle,
            413 => too_large = middle,
            code => panic!("{code}"),
        }
    }
    assert_eq!((fill(fits).await, fill(fits + 1).await), (200, 413), "there is no byte left");
    others_can_use_the_node(&hub).await;
}

#[tokio::test]
async fn large_and_wrong_lists_are_answered_in_time() {
    let hub = hub_with_node().await;
    let status = format!("{NODE}/status");
    let node = |conditions: Vec<Value>| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"conditions": conditions}});
    let condition = |name: usize, status: &str| json!({"type": name.to_string(), "status": status, "lastHeartbeatTime": null});
    let many =
        |count: usize, status: &str| node((0..count).map(|n| condition(n, status)).collect());
    assert_eq!(apply(&hub, &status, "one", &many(3000, "True")).await.0, 200);
    let (code, conflict) = apply(&hub, &status, "two", &many(3000, "False")).await;
    assert_eq!(code, 409);
    let bytes = conflict.to_string().len();
    assert!(bytes < 256 << 10, "a conflict of {bytes} bytes");
    let (code, _) = apply(&hub, &status, "one", &many(40_000, "True")).await;
    assert_eq!(code, 413);
    let same = node(vec![condition(0, "True"); 40_000]);
    let (code, error) = apply(&hub, &status, "three", &same).await;
    assert!(code == 400 || code == 413 || code == 422, "{code}");
    assert!(error.to_string().len() < 256 << 10);
    let owners: Vec<Value> = (0..10_000).map(|n| json!({"uid": n.to_string()})).collect();
    let owned = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "ownerReferences": owners}});
    assert!(apply(&hub, NODE, "four", &owned).await.0 >= 400);
    let finalizers: Vec<String> = (0..50_000).map(|n| format!("x.io/{n}")).collect();
    let owned = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "finalizers": finalizers}});
    assert!(apply(&hub, NODE, "five", &owned).await.0 >= 400);
    others_can_use_the_node(&hub).await;
}

/// A machine writes `metadata.managedFields` of its Node itself.
#[tokio::test]
async fn forged_managers_do_no_harm() {
    let hub = hub_with_node().await;
    let merge = "application/merge-patch+json";
    let entry = |manager: &str, fields: Value| {
        json!({"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": "2099-01-01T00:00:00Z", "fieldsV1": fields})
    };
    let deep = (0..90).fold(json!({}), |inner, _| json!({"f:x": inner}));
    let wide: Value = (0..20_000)
        .map(|n| (format!("f:{n}"), json!({})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let forged = [
        vec![json!(null)],
        vec![json!({"manager": 1})],
        vec![entry("a", json!({"f:metadata": {"k:{": {}}}))],
        vec![entry("a", json!({"v:{\"a\":1}": {}, "i:-1": {}, "i:99999999999999999999": {}}))],
        vec![entry("controller", json!({"f:spec": {"f:unschedulable": {}}}))],
        vec![entry("a", deep)],
        vec![entry("a", wide)],
        (0..3000).map(|n| entry(&n.to_string(), json!({"f:spec": {}}))).collect(),
    ];
    for entries in forged {
        let body = json!({"metadata": {"managedFields": entries}});
        let (code, _) = as_machine(&hub, "PATCH", NODE, merge, &body).await;
        println!("forged: {code}");
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"z": code.to_string()}}});
        let path = format!("{NODE}?fieldManager=admin&force=true");
        let kind = "application/apply-patch+yaml";
        let (code, body) = request(&hub, UserInfo::admin(), "PATCH", &path, kind, &body).await;
        assert_eq!(code, 200, "{body}");
    }
    others_can_use_the_node(&hub).await;
}

/// What a machine may not write it may not apply either, neither to what there is nor as something new.
#[tokio::test]
async fn an_apply_gives_a_machine_no_more_rights_than_a_write() {
    let hub = hub_with_node().await;
    let node = |metadata: Value| {
        let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
        node["metadata"]["name"] = json!("a");
        node
    };
    let event = |about: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": about}, "reason": "R", "message": "m", "type": "Normal"})
    };
    let map = |kind: &str, version: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "b"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces";
    let role = json!({"labels": {"node-role.kubernetes.io/master": ""}});
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "b", "uid": "1"}]);
    let cases = [
        (NODE.to_owned(), node(role)),
        (NODE.to_owned(), node(json!({"finalizers": ["x.io/stay"]}))),
        (NODE.to_owned(), node(json!({"ownerReferences": owner}))),
        ("/api/v1/nodes/b".to_owned(), map("Node", "v1")),
        ("/api/v1/namespaces/default/events/e".to_owned(), event("b")),
        (format!("{leases}/kube-node-lease/leases/b"), map("Lease", "coordination.k8s.io/v1")),
        (format!("{leases}/kube-system/leases/a"), map("Lease", "coordination.k8s.io/v1")),
        ("/api/v1/namespaces/default/secrets/b".to_owned(), map("Secret", "v1")),
        ("/api/v1/namespaces/default/configmaps/b".to_owned(), map("ConfigMap", "v1")),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests/b".to_owned(),
            map("CertificateSigningRequest", "certificates.k8s.io/v1"),
        ),
    ];
    for (path, body) in cases {
        for force in ["me", "me&force=true", "me&force=true&dryRun=All"] {
            let (code, response) = apply(&hub, &path, force, &body).await;
            assert_eq!(code, 403, "{path} {force}: {response}");
        }
    }
    let (code, _) = apply(&hub, "/api/v1/namespaces/default/events/e", "me", &event("a")).await;
    assert_eq!(code, 201, "its own");
    let roles = json!({"labels": {"node-role.kubernetes.io/master": "", "own": "x"}});
    assert_eq!(as_machine(&hub, "DELETE", NODE, "application/json", &Value::Null).await.0, 200);
    let (code, created) = apply(&hub, NODE, "me", &node(roles)).await;
    assert_eq!((code, &created["metadata"]["labels"]), (201, &json!({"own": "x"})), "{created}");
}

/// The number of Events that a machine may hold counts those that it creates by applying them.
#[tokio::test]
async fn applied_events_count() {
    let hub = hub_with_node().await;
    let mut refused = None;
    for n in 0..1010 {
        let name = format!("e{n}");
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": "a"}, "reason": "R", "message": "m", "type": "Normal"});
        let path = format!("/api/v1/namespaces/default/events/{name}");
        let (code, body) = apply(&hub, &path, "me", &event).await;
        if code != 201 {
            refused = Some((n, code, body));
            break;
        }
    }
    let (count, code, body) = refused.expect("no limit was reached");
    assert_eq!((count, code), (1000, 429), "{body}");
}
