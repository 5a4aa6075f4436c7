//! Objects that cannot be decoded: a client cannot store one, and those that are there do not keep an
//! administrator from listing and deleting.
use machinist_hub::auth::UserInfo;
use machinist_hub::store::{Precondition, Store, StoreOp, StoreOptions};
use machinist_hub::{Hub, HubConfig};
use serde_json::{Value, json};

use crate::support::{TestHub, send};

const TABLE: (&str, &str) = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");

/// A store with one readable Node and two that cannot be decoded.
async fn damaged_store(dir: &std::path::Path) -> Store {
    let store = Store::open(dir, StoreOptions::default()).unwrap();
    let deep = format!(
        "{{\"metadata\":{{\"name\":\"deep\",\"ownerReferences\":[{{\"x\":{}{}}}]}},\"apiVersion\":\"v1\",\"kind\":\"Node\"}}",
        "[".repeat(200),
        "]".repeat(200)
    );
    let good = "{\"metadata\":{\"name\":\"good\",\"labels\":{\"a\":\"b\"}},\"apiVersion\":\"v1\",\"kind\":\"Node\"}";
    for (name, value) in [("deep", deep.as_str()), ("good", good), ("broken", "{\"metadata\":{")] {
        let (key, value) = (format!("/core/nodes/-/{name}"), value.to_owned().into());
        store.commit(vec![StoreOp::Put { key, value, expect: Precondition::Any }]).await.unwrap();
    }
    store
}

async fn start(store: Store) -> TestHub {
    TestHub { hub: Hub::start(store, HubConfig::default()).await.unwrap() }
}

fn unreadable_metric(hub: &TestHub) -> String {
    let mut text = String::new();
    hub.hub.metrics().encode(&mut text);
    let line =
        text.lines().find(|line| line.starts_with("machinist_hub_store_unreadable_objects "));
    line.unwrap().rsplit(' ').next().unwrap().to_owned()
}

async fn names(hub: &TestHub, query: &str) -> Vec<String> {
    let (code, list) = hub.send("GET", &format!("/api/v1/nodes{query}"), &[], String::new()).await;
    assert_eq!(code, 200, "{query}: {list}");
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn lists_skip_unreadable_objects() {
    let dir = tempfile::tempdir().unwrap();
    let hub = start(damaged_store(dir.path()).await).await;
    for query in
        ["", "?labelSelector=a", "?limit=1", "?fieldSelector=metadata.name!=x", "?pretty=true"]
    {
        assert_eq!(names(&hub, query).await, ["good"], "{query}");
    }
    assert_eq!(names(&hub, "?labelSelector=!a").await, Vec::<String>::new());
    let (code, table) = hub.send("GET", "/api/v1/nodes", &[TABLE], String::new()).await;
    assert_eq!((code.as_u16(), table["rows"].as_array().unwrap().len()), (200, 1), "{table}");
    let watch = "/api/v1/nodes?watch=true&timeoutSeconds=1";
    let (code, events) = hub.send("GET", watch, &[], String::new()).await;
    assert_eq!(
        (code.as_u16(), &events["object"]["metadata"]["name"]),
        (200, &json!("good")),
        "{events}"
    );
    assert_eq!(unreadable_metric(&hub), "2");
}

#[tokio::test]
async fn an_administrator_deletes_unreadable_objects() {
    let dir = tempfile::tempdir().unwrap();
    let hub = start(damaged_store(dir.path()).await).await;
    let (code, error) = hub.send("GET", "/api/v1/nodes/deep", &[], String::new()).await;
    assert_eq!(code, 500);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("/core/nodes/-/deep") && message.contains("delete it"), "{message}");

    let wrong = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "x"}});
    let (code, error) = hub.send("DELETE", "/api/v1/nodes/deep", &[], wrong.to_string()).await;
    assert_eq!(code, 409, "{error}");
    let (code, error) =
        hub.send("DELETE", "/api/v1/nodes/deep?dryRun=All", &[], String::new()).await;
    assert_eq!(code, 200, "{error}");
    assert_eq!(unreadable_metric(&hub), "2");
    let (code, status) = hub.send("DELETE", "/api/v1/nodes/deep", &[], String::new()).await;
    assert_eq!((code.as_u16(), &status["status"]), (200, &json!("Success")), "{status}");
    assert_eq!(unreadable_metric(&hub), "1");

    let (code, list) =
        hub.send("DELETE", "/api/v1/nodes?labelSelector=z", &[], String::new()).await;
    assert_eq!(code, 200, "{list}");
    assert_eq!(unreadable_metric(&hub), "1", "nobody knows whether the selector matches");
    let (code, list) = hub.send("DELETE", "/api/v1/nodes", &[], String::new()).await;
    assert_eq!(code, 200, "{list}");
    assert_eq!(unreadable_metric(&hub), "0");
    let store = hub.hub.store().clone();
    assert!(store.list("/core/nodes/", None, None).entries.is_empty());
    hub.hub.stop().await;
    drop(hub);
    store.close().await;
    let hub = start(Store::open(dir.path(), StoreOptions::default()).unwrap()).await;
    assert_eq!(unreadable_metric(&hub), "0", "also after a restart");
}

#[tokio::test]
async fn a_machine_cannot_store_what_an_administrator_cannot_read() {
    let hub = TestHub::start().await;
    let machine = || hub.hub.router_as(UserInfo::node("a"));
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}).to_string();
    let (code, node) = send(machine(), "POST", "/api/v1/nodes", &[], node).await;
    assert_eq!(code, 201, "{node}");

    // Unknown fields of an owner are dropped, however deep they are.
    let uid = &node["metadata"]["uid"];
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "a", "uid": uid});
    let deep: Value = (0..90).fold(json!(1), |inner, _| json!([inner]));
    let mut sent = owner.clone();
    sent["x"] = deep;
    let patch = json!({"metadata": {"ownerReferences": [sent]}}).to_string();
    let merge = [("content-type", "application/merge-patch+json")];
    let (code, stored) = send(machine(), "PATCH", "/api/v1/nodes/a", &merge, patch.clone()).await;
    assert_eq!(code, 200, "{stored}");
    assert_eq!(stored["metadata"]["ownerReferences"], json!([owner]));
    let strict = "/api/v1/nodes/a?fieldValidation=Strict";
    let (code, error) = send(machine(), "PATCH", strict, &merge, patch).await;
    assert_eq!(code, 422, "{error}");
    let wrong = json!({"metadata": {"ownerReferences": [{"name": {"a": 1}}]}}).to_string();
    let (code, error) = send(machine(), "PATCH", "/api/v1/nodes/a", &merge, wrong).await;
    assert_eq!(code, 400, "{error}");

    let (code, _) = hub.send("GET", "/api/v1/nodes?labelSelector=!x", &[], String::new()).await;
    assert_eq!(code, 200);
    let (code, _) = hub.send("DELETE", "/api/v1/nodes/a", &[], String::new()).await;
    assert_eq!(code, 200);
}
