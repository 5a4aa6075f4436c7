//! A machine that tries to keep an administrator from deleting its objects.
use machinist_hub::auth::UserInfo;
use serde_json::json;

use crate::support::{TestHub, send};

const NODE: &str = "/api/v1/nodes/a";
const MERGE: [(&str, &str); 1] = [("content-type", "application/merge-patch+json")];

#[tokio::test]
async fn a_machine_cannot_hold_its_node_with_a_finalizer() {
    let hub = TestHub::start().await;
    let machine = || hub.hub.router_as(UserInfo::node("a"));
    let node =
        |metadata| json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}).to_string();
    let held = node(json!({"name": "a", "finalizers": ["x.io/never"]}));
    let (code, error) = send(machine(), "POST", "/api/v1/nodes", &[], held).await;
    assert_eq!(code, 403);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("x.io/never") && message.contains("metadata.finalizers"), "{message}");
    assert_eq!(
        send(machine(), "POST", "/api/v1/nodes", &[], node(json!({"name": "a"}))).await.0,
        201
    );
    let patch = json!({"metadata": {"finalizers": ["x.io/never"]}}).to_string();
    for path in [NODE, "/api/v1/nodes/a/status"] {
        assert_eq!(send(machine(), "PATCH", path, &MERGE, patch.clone()).await.0, 403, "{path}");
    }
    assert_eq!(hub.send("DELETE", NODE, &[], String::new()).await.0, 200);
    assert_eq!(hub.send("GET", NODE, &[], String::new()).await.0, 404);
}

/// What a controller put there is not the machine's to explain.
#[tokio::test]
async fn a_machine_updates_an_object_that_a_controller_holds() {
    let hub = TestHub::start().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "finalizers": ["x.io/f"]}});
    assert_eq!(hub.send("POST", "/api/v1/nodes", &[], node.to_string()).await.0, 201);
    let router = hub.hub.router_as(UserInfo::node("a"));
    let patch = json!({"metadata": {"annotations": {"a": "b"}}}).to_string();
    assert_eq!(send(router, "PATCH", NODE, &MERGE, patch).await.0, 200);
}

#[tokio::test]
async fn a_machine_cannot_tie_its_objects_to_others() {
    let hub = TestHub::start().await;
    let create = async |name: &str| {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let (code, node) = hub.send("POST", "/api/v1/nodes", &[], node.to_string()).await;
        assert_eq!(code, 201);
        node["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let (own, foreign) = (create("a").await, create("b").await);
    let lease = |owner: &str, uid: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "a", "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": owner, "uid": uid},
            ]},
        })
        .to_string()
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let router = || hub.hub.router_as(UserInfo::node("a"));
    for (owner, uid) in [("b", &foreign), ("a", &foreign)] {
        let (code, error) = send(router(), "POST", leases, &[], lease(owner, uid)).await;
        assert_eq!(code, 403, "{owner} {uid}: {error}");
    }
    let (code, _) = send(router(), "POST", leases, &[], lease("a", &own)).await;
    assert_eq!(code, 201, "as a kubelet does");
}
