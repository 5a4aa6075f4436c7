//! A machine or a bootstrap token that floods the hub: sizes, numbers and rates are limited, and old
//! requests and events disappear.
use machinist_hub::auth::{BOOTSTRAP_GROUP, UserInfo};
use machinist_hub::store::{Precondition, Store, StoreOp, StoreOptions};
use machinist_hub::{Hub, HubConfig, WriteRate, WriteRates};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::{TestHub, send, wait_until};

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn bootstrap() -> UserInfo {
    UserInfo::new("system:bootstrap:x", [BOOTSTRAP_GROUP.to_owned()])
}

fn csr(request: &str) -> String {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {"request": request, "signerName": "x.io/y", "usages": ["client auth"]},
    })
    .to_string()
}

fn event(name: &str, message: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "a"}, "reason": "R", "message": message, "type": "Normal",
        "lastTimestamp": "2099-01-01T00:00:00Z",
    })
    .to_string()
}

async fn post(hub: &TestHub, user: UserInfo, path: &str, body: String) -> (u16, Value) {
    let (code, body) = send(hub.hub.router_as(user), "POST", path, &[], body).await;
    (code.as_u16(), body)
}

fn stored_bytes(hub: &TestHub) -> usize {
    let entries = hub.hub.store().list("", None, None).entries;
    entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum()
}

#[tokio::test]
async fn each_kind_has_a_size_limit() {
    let hub = TestHub::start().await;
    let (code, error) = post(&hub, bootstrap(), CSRS, csr(&"QUFB".repeat(700_000))).await;
    assert_eq!(code, 413);
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("certificatesigningrequests") && message.contains("limit is 16384"),
        "{message}"
    );
    assert_eq!(post(&hub, bootstrap(), CSRS, csr(&"QUFB".repeat(700))).await.0, 201);

    let machine = UserInfo::node("a");
    assert_eq!(post(&hub, machine.clone(), EVENTS, event("big", &"x".repeat(20_000))).await.0, 413);
    assert_eq!(post(&hub, machine.clone(), EVENTS, event("small", "x")).await.0, 201);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "a", "annotations": {"x": "x".repeat(20_000)}},
    });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(post(&hub, machine.clone(), leases, lease.to_string()).await.0, 413);
    let address = json!({"type": "x".repeat(2 << 20), "address": "a"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"addresses": [address]},
    });
    assert_eq!(post(&hub, machine, "/api/v1/nodes", node.to_string()).await.0, 413);
    let prefix = "/certificates.k8s.io/";
    assert_eq!(hub.hub.store().list(prefix, None, None).entries.len(), 1);
}

/// What an older version stored stays usable.
#[tokio::test]
async fn an_object_over_the_limit_may_be_changed_but_not_grow() {
    let store = Store::in_memory(StoreOptions::default());
    let big = json!({"metadata": {"name": "a", "annotations": {"x": "x".repeat(40_000)}},
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "b"}});
    let key = "/coordination.k8s.io/leases/default/a".to_owned();
    let value = big.to_string().into();
    store.commit(vec![StoreOp::Put { key, value, expect: Precondition::Any }]).await.unwrap();
    let hub = TestHub { hub: Hub::start(store, HubConfig::default()).await.unwrap() };
    let patch = async |text: &str| {
        let body = json!({"spec": {"holderIdentity": text}}).to_string();
        let merge = [("content-type", "application/merge-patch+json")];
        let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a";
        hub.send("PATCH", path, &merge, body).await.0.as_u16()
    };
    assert_eq!(patch("c").await, 200);
    assert_eq!(patch("much longer than before").await, 413);
}

#[tokio::test]
async fn a_machine_holds_a_limited_number_of_csrs() {
    let hub = TestHub::start().await;
    let machine = UserInfo::node("a");
    let mut own = Value::Null;
    for n in 0..20 {
        let (code, created) = post(&hub, machine.clone(), CSRS, csr("QUFB")).await;
        assert_eq!(code, 201, "{n}");
        own = created;
    }
    let request = http::Request::post(CSRS).body(axum::body::Body::from(csr("QUFB"))).unwrap();
    let response = hub.hub.router_as(machine.clone()).oneshot(request).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "60");
    assert_eq!(post(&hub, UserInfo::node("b"), CSRS, csr("QUFB")).await.0, 201);
    assert_eq!(post(&hub, UserInfo::admin(), CSRS, csr("QUFB")).await.0, 201);

    let name = own["metadata"]["name"].as_str().unwrap();
    let (code, _) = hub.send("DELETE", &format!("{CSRS}/{name}"), &[], String::new()).await;
    assert_eq!(code, 200);
    assert_eq!(post(&hub, machine, CSRS, csr("QUFB")).await.0, 201);
}

#[tokio::test]
async fn a_machine_has_a_write_rate_and_an_administrator_has_none() {
    let hub = TestHub::start().await;
    let mut refused = None;
    for n in 0..1000 {
        let (code, error) =
            post(&hub, UserInfo::node("a"), EVENTS, event(&format!("e{n}"), "x")).await;
        if code != 201 {
            refused = Some((n, code, error));
            break;
        }
    }
    let (accepted, code, error) = refused.expect("the flood ends");
    assert_eq!(code, 429, "{error}");
    assert!(accepted >= 200, "{accepted}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("system:node:a") && message.contains("20 times a second"),
        "{message}"
    );
    assert_eq!(
        post(
            &hub,
            UserInfo::node("b"),
            EVENTS,
            event("other", "x").replace(r#""name":"a""#, r#""name":"b""#)
        )
        .await
        .0,
        201
    );
    for n in 0..600 {
        let (code, error) =
            post(&hub, UserInfo::admin(), EVENTS, event(&format!("admin{n}"), "x")).await;
        assert_eq!(code, 201, "{n}: {error}");
    }
}

/// A large write takes as much of the history as many small ones.
#[tokio::test]
async fn large_writes_count_as_several() {
    let rate = WriteRate { per_second: 0.001, burst: 200.0 };
    let write_rates = WriteRates { machine: rate, bootstrap: rate };
    let config = HubConfig { write_rates, ..HubConfig::default() };
    let store = Store::in_memory(StoreOptions::default());
    let hub = TestHub { hub: Hub::start(store, config).await.unwrap() };
    let node = |n: usize| {
        let address = json!({"type": "x".repeat(900_000), "address": n.to_string()});
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"addresses": [address]},
        });
        node.to_string()
    };
    assert_eq!(post(&hub, UserInfo::node("a"), "/api/v1/nodes", node(0)).await.0, 201);
    let mut accepted = 1;
    loop {
        let router = hub.hub.router_as(UserInfo::node("a"));
        let (code, error) = send(router, "PUT", "/api/v1/nodes/a", &[], node(accepted)).await;
        if code != 200 {
            assert_eq!(code, 429, "{error}");
            break;
        }
        accepted += 1;
        assert!(accepted < 50, "45 MB at once");
    }
    assert!(accepted > 10, "{accepted}");
}

/// Whoever has a bootstrap token for many machines has as many identities as it likes. Together they do not fill the hub,
/// and an administrator can delete what they wrote.
#[tokio::test]
async fn many_machines_do_not_fill_the_hub_together() {
    let config = HubConfig { max_stored_bytes: Some(8 << 20), ..HubConfig::default() };
    let store = Store::in_memory(StoreOptions::default());
    let hub = TestHub { hub: Hub::start(store, config).await.unwrap() };
    let node = |name: &str, size: usize| {
        let address = json!({"type": "x".repeat(size), "address": name});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"addresses": [address]}})
            .to_string()
    };
    let mut accepted = Vec::new();
    let refused = loop {
        let name = format!("w{}", accepted.len());
        let body = node(&name, 900_000);
        let (code, error) = post(&hub, UserInfo::node(&name), "/api/v1/nodes", body).await;
        if code != 201 {
            break (code, error["message"].as_str().unwrap().to_owned());
        }
        accepted.push(name);
        assert!(accepted.len() < 10, "9 MB");
    };
    assert!(refused.0 == 429 && refused.1.contains("the limit is 8388608"), "{refused:?}");
    assert!(accepted.len() > 5, "{accepted:?}");
    // A CSR of the size that they have.
    assert_eq!(post(&hub, bootstrap(), CSRS, csr(&"QUFB".repeat(3000))).await.0, 201);
    let left = (8 << 20) - stored_bytes(&hub);
    let filler = node("filler", left - 20_000);
    assert_eq!(post(&hub, UserInfo::node("filler"), "/api/v1/nodes", filler).await.0, 201);
    let machine = || UserInfo::node("w0");
    let update = async |size: usize| {
        let router = hub.hub.router_as(machine());
        let path = "/api/v1/nodes/w0/status";
        send(router, "PUT", path, &[], node("w0", size)).await.0.as_u16()
    };
    assert_eq!(update(930_000).await, 429);
    assert_eq!(update(50_000).await, 200, "machines report their state");
    let small = node("late", 500_000);
    wait_until("there is space for a machine", async || {
        post(&hub, UserInfo::node("late"), "/api/v1/nodes", small.clone()).await.0 == 201
    })
    .await;
    let name = "admins";
    assert_eq!(post(&hub, UserInfo::admin(), "/api/v1/nodes", node(name, 900_000)).await.0, 201);
    for name in &accepted {
        let path = format!("/api/v1/nodes/{name}");
        assert_eq!(hub.send("DELETE", &path, &[], String::new()).await.0, 200);
    }
}

#[tokio::test]
async fn old_requests_and_events_disappear_whatever_time_they_claim() {
    let store = Store::in_memory(StoreOptions::default());
    let object = |kind: &str, version: &str, created: &str| {
        json!({"metadata": {"name": "a", "creationTimestamp": created}, "kind": kind, "apiVersion": version,
            "lastTimestamp": "2099-01-01T00:00:00Z", "spec": {"request": "QUFB"}})
        .to_string()
    };
    let now = jiff::Timestamp::now().to_string();
    for (name, created) in [("old", "2020-01-01T00:00:00Z"), ("new", now.as_str())] {
        for (prefix, kind, version) in [
            ("/core/events/default/", "Event", "v1"),
            (
                "/certificates.k8s.io/certificatesigningrequests/-/",
                "CertificateSigningRequest",
                "certificates.k8s.io/v1",
            ),
        ] {
            let (key, value) = (format!("{prefix}{name}"), object(kind, version, created).into());
            store
                .commit(vec![StoreOp::Put { key, value, expect: Precondition::Any }])
                .await
                .unwrap();
        }
    }
    let hub = Hub::start(store, HubConfig::default()).await.unwrap();
    for prefix in ["/core/events/default/", "/certificates.k8s.io/certificatesigningrequests/-/"] {
        let left = || {
            let page = hub.store().list(prefix, None, None);
            page.entries.iter().map(|entry| entry.key.to_string()).collect::<Vec<_>>()
        };
        wait_until("the old one is gone", async || left() == [format!("{prefix}new")]).await;
    }
    hub.stop().await;
}
