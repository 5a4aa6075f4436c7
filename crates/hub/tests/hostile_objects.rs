//! Attacks of a machine with deep, large and repetitive objects. The hub refuses each and keeps
//! serving.
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use http::StatusCode;
use machinist_hub::auth::UserInfo;
use machinist_hub::store::{Store, StoreOptions};
use machinist_hub::{Hub, HubConfig, StartError};
use serde_json::{Value, json};

use tower::ServiceExt as _;

use crate::support::{self, TestHub, send};

const NODE: &str = "/api/v1/nodes/a";

async fn machine_sends(
    hub: &TestHub,
    method: &'static str,
    path: &'static str,
    content_type: &'static str,
    body: String,
) -> (StatusCode, Value) {
    // On a worker thread, which has the stack that requests have in production.
    let router = hub.hub.router_as(UserInfo::node("a"));
    let request =
        async move { send(router, method, path, &[("content-type", content_type)], body).await };
    tokio::spawn(request).await.expect("the handler does not panic")
}

async fn hub_with_node() -> TestHub {
    let hub = TestHub::start().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}).to_string();
    let (code, body) = machine_sends(&hub, "POST", "/api/v1/nodes", "application/json", node).await;
    assert_eq!(code, 201, "{body}");
    hub
}

/// Sends a JSON patch to the machine's own Node, checks that the hub still serves it, and returns
/// the code and the message.
async fn patch_node(hub: &TestHub, operations: Vec<Value>) -> (u16, String) {
    let body = Value::from(operations).to_string();
    let (code, body) = machine_sends(hub, "PATCH", NODE, "application/json-patch+json", body).await;
    assert_eq!(hub.send("GET", NODE, &[], String::new()).await.0, 200);
    (code.as_u16(), body["message"].as_str().unwrap_or_default().to_owned())
}

fn nested_text(open: &str, close: &str, depth: usize) -> String {
    format!("{}1{}", open.repeat(depth), close.repeat(depth))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn add_and_move_cannot_nest_an_object_past_the_limit() {
    let hub = hub_with_node().await;
    let deep: Value = serde_json::from_str(&nested_text("{\"a\":", "}", 90)).unwrap();
    let (at, inner) =
        (format!("/y{}", "/a".repeat(90)), json!({"op": "add", "path": "/y", "value": deep}));
    let mut operations = vec![json!({"op": "add", "path": "/x", "value": {}})];
    for _ in 0..200 {
        operations.push(inner.clone());
        operations.push(json!({"op": "move", "from": "/x", "path": at}));
        operations.push(json!({"op": "move", "from": "/y", "path": "/x"}));
    }
    let (code, message) = patch_node(&hub, operations).await;
    assert_eq!(code, 422, "{message}");
    assert!(
        message.contains("nested deeper than 100 levels") && message.contains("flatten"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_cannot_double_an_object_forever() {
    let hub = hub_with_node().await;
    let mut operations = vec![json!({"op": "add", "path": "/x", "value": ["x".repeat(1000)]})];
    operations.extend((0..60).map(|_| json!({"op": "copy", "from": "/x", "path": "/x/-"})));
    let (code, message) = patch_node(&hub, operations).await;
    assert_eq!(code, 413, "{message}");
}

/// A text of three megabytes can have half a million objects, which take hundreds of megabytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_cannot_multiply_tiny_objects() {
    let hub = hub_with_node().await;
    let mut operations = vec![json!({"op": "add", "path": "/x", "value": [{"": 0}]})];
    for n in 0..18 {
        operations.push(json!({"op": "copy", "from": "/x", "path": format!("/y{n}")}));
        operations.push(json!({"op": "copy", "from": "/x", "path": "/x/-"}));
    }
    let (code, message) = patch_node(&hub, operations).await;
    assert_eq!(code, 413, "{message}");
    assert!(message.contains("50000 values"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_has_a_bounded_number_of_operations_and_steps() {
    let hub = hub_with_node().await;
    let test = json!({"op": "test", "path": "/kind", "value": "Node"});
    let (code, message) = patch_node(&hub, vec![test.clone(); 10_001]).await;
    assert_eq!(code, 413, "{message}");
    assert!(message.contains("maximum operations"), "{message}");
    assert_eq!(patch_node(&hub, vec![test; 10_000]).await.0, 200);

    // Each insert shifts the whole list.
    let mut operations = vec![json!({"op": "add", "path": "/x", "value": vec![0; 500_000]})];
    operations.extend((0..9_000).map(|_| json!({"op": "add", "path": "/x/0", "value": 0})));
    let started = Instant::now();
    let (code, message) = patch_node(&hub, operations).await;
    assert_eq!(code, 413, "{message}");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merge_patches_cannot_nest_past_the_limit() {
    let hub = hub_with_node().await;
    let body = format!("{{\"spec\":{}}}", nested_text("{\"a\":", "}", 100));
    for kind in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        let (code, body) = machine_sends(&hub, "PATCH", NODE, kind, body.clone()).await;
        assert!(code == 400 || code == 422, "{kind}: {code} {body}");
        assert!(body["message"].as_str().unwrap().contains("100 levels"), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_cannot_nest_past_the_limit() {
    let hub = hub_with_node().await;
    let json = |depth| format!("{{\"spec\":{}}}", nested_text("[", "]", depth));
    // Each alias is one level deeper than the one before.
    let mut aliases = "x0: &x0 [1]\n".to_owned();
    for n in 1..200 {
        aliases += &format!("x{n}: &x{n} [*x{}]\n", n - 1);
    }
    for (kind, body) in [
        ("application/json", json(100)),
        ("application/json", json(1_000_000)),
        ("application/yaml", json(100)),
        ("application/yaml", json(100_000)),
        ("application/yaml", aliases),
    ] {
        for (method, path) in [("POST", "/api/v1/nodes"), ("PUT", NODE)] {
            let (code, answer) = machine_sends(&hub, method, path, kind, body.clone()).await;
            // 413: already too expensive to decode.
            assert!(code == 400 || code == 413, "{kind} {method}: {answer}");
        }
    }
    assert_eq!(hub.send("GET", NODE, &[], String::new()).await.0, 200);
}

/// The error repeats what was sent, but not more than a screen of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_do_not_multiply_a_body() {
    let hub = hub_with_node().await;
    let repeated = |name: &str, count: usize| {
        let twice = vec!["\"a\":1"; count].join(",");
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{{\"name\":\"a\"}},\"{name}\":{{{twice}}}}}"
        )
    };
    let unknown: Vec<String> = (0..100_000).map(|n| format!("\"u{n}\":1")).collect();
    let labels: Vec<String> = (0..50_000).map(|n| format!("\"{n} \":\"bad value\"")).collect();
    let head = "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"a\"";
    for body in [
        repeated(&"k".repeat(1_000_000), 100_000),
        repeated(&"k".repeat(4000), 300_000),
        format!("{head}}},{}}}", unknown.join(",")),
        format!("{head},\"labels\":{{{}}}}}}}", labels.join(",")),
    ] {
        let path = "/api/v1/nodes/a?fieldValidation=Strict";
        let (code, answer) = machine_sends(&hub, "PUT", path, "application/json", body).await;
        assert!([400, 413, 422].contains(&code.as_u16()), "{code}");
        let size = answer.to_string().len();
        assert!(size < 256 << 10, "{size} bytes: {}", &answer.to_string()[..500]);
    }
}

/// An unknown directive is repeated with the patch around it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_repeats_only_the_beginning_of_a_patch() {
    let hub = hub_with_node().await;
    let kind = "application/strategic-merge-patch+json";
    let large = "x".repeat(2 << 20);
    for body in [json!({"$patch": "bogus", "a": large}), json!({"$patch": large})] {
        let (code, answer) = machine_sends(&hub, "PATCH", NODE, kind, body.to_string()).await;
        assert!([400, 413, 422, 500].contains(&code.as_u16()), "{code}");
        assert!(answer.to_string().len() < 64 << 10, "{} bytes", answer.to_string().len());
    }
}

#[tokio::test]
async fn a_crd_that_is_too_deep_is_refused_at_start() {
    let mut crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "deep.g.io"}, "spec": {"group": "g.io"},
    });
    let mut schema = json!({"type": "string"});
    for _ in 0..60 {
        schema = json!({"type": "object", "properties": {"a": schema}});
    }
    crd["spec"]["versions"] = json!([{"name": "v1", "schema": {"openAPIV3Schema": schema}}]);
    let config = HubConfig { crds: vec![crd], ..HubConfig::default() };
    let error = Hub::start(Store::in_memory(StoreOptions::default()), config).await.unwrap_err();
    assert!(matches!(error, StartError::InvalidDefinition { .. }));
    let text = error.to_string();
    assert!(text.contains("deep.g.io") && text.contains("100 levels"), "{text}");
}

/// Clients of one identity that send most of a large body and then nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_never_end_do_not_block_others() {
    let hub = hub_with_node().await;
    let mut stalled = Vec::new();
    for _ in 0..100 {
        let start = futures::stream::iter([Ok::<_, std::io::Error>(vec![b' '; 3 << 20])]);
        let body = axum::body::Body::from_stream(start.chain(futures::stream::pending()));
        let request = http::Request::post("/api/v1/nodes").body(body).unwrap();
        let router = hub.hub.router_as(UserInfo::node("b"));
        stalled.push(tokio::spawn(async move { router.oneshot(request).await.unwrap().status() }));
    }
    // Those beyond the share of the identity are refused at once; the others wait for their end.
    let is_finished = |task: &&tokio::task::JoinHandle<StatusCode>| task.is_finished();
    support::wait_until("the surplus is refused", async || {
        stalled.iter().filter(is_finished).count() >= 95
    })
    .await;
    let patch = json!({"metadata": {"annotations": {"a": "b"}}}).to_string();
    let merge = "application/merge-patch+json";
    let (code, body) = machine_sends(&hub, "PATCH", NODE, merge, patch.clone()).await;
    assert_eq!(code, 200, "another machine writes: {body}");
    let (code, body) = hub.send("PATCH", NODE, &[("content-type", merge)], patch).await;
    assert_eq!(code, 200, "the administrator writes: {body}");
    for task in stalled.into_iter().filter(tokio::task::JoinHandle::is_finished) {
        assert_eq!(task.await.unwrap(), 429);
    }
}

/// The response to a review repeats what was sent: it must not be a way to multiply it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_review_is_small_and_returns_only_its_own_fields() {
    let hub = hub_with_node().await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let big = format!("a: &x \"{}\"\nb: [{}]\n", "A".repeat(64_000), "*x,".repeat(900));
    let (code, _) = machine_sends(&hub, "POST", path, "application/yaml", big).await;
    assert_eq!(code, 413);
    let small = json!({"extra": "x"}).to_string();
    let (code, review) = machine_sends(&hub, "POST", path, "application/json", small).await;
    assert_eq!(code, 201);
    assert_eq!(review["status"]["userInfo"]["username"], "system:node:a");
    assert!(review.get("extra").is_none(), "{review}");
}
