//! Each write of a hub to its data directory fails once with a full disk, from its start to its end: no acknowledged
//! request is lost, no failed one is seen, and clients that try again succeed.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt as _;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::auth::UserInfo;
use crate::store::{FileControl, Store, StoreOptions};
use crate::{Hub, HubConfig};

const DISK_FULL: i32 = 28;
const OPTIONS: StoreOptions =
    StoreOptions { history: 100, history_bytes: 1 << 20, reserve_bytes: 64 << 10 };
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TOKENS: &str = "/machinist/v1/tokens";
const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const ATTEMPTS: u32 = 1500;
const PAUSE: Duration = Duration::from_millis(20);

struct FaultSession {
    dir: tempfile::TempDir,
    control: FileControl,
    hub: Option<Hub>,
    /// What each path returns, after acknowledged requests only; `None` after a delete.
    expected: BTreeMap<String, Option<Value>>,
    failures: u32,
}

impl FaultSession {
    async fn start(&mut self) {
        for _ in 0..ATTEMPTS {
            let data = self.dir.path().join("data");
            match Store::open_with(&data, OPTIONS, self.control.clone()) {
                Ok(store) => match Hub::start(store.clone(), HubConfig::default()).await {
                    Ok(hub) => {
                        self.hub = Some(hub);
                        return;
                    }
                    Err(_) => store.close().await,
                },
                Err(error) => assert!(!error.to_string().contains("damaged"), "{error}"),
            }
            self.failures += 1;
            self.control = self.control.for_next_process();
            tokio::time::sleep(PAUSE).await;
        }
        panic!("the hub does not start again");
    }

    async fn stop(&mut self) {
        let hub = self.hub.take().unwrap();
        hub.stop().await;
        let store = hub.store().clone();
        drop(hub);
        store.close().await;
        self.control = self.control.for_next_process();
    }

    async fn send_once(
        &self,
        user: &UserInfo,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (u16, Value) {
        let kind = match method {
            "PATCH" if body.get("kind").is_some() => "application/apply-patch+yaml",
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let router = self.hub.as_ref().unwrap().router_as(user.clone());
        let response = router.oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Sends a request until it succeeds. Before that, nothing of it may be seen.
    async fn send(&mut self, user: &UserInfo, method: &str, path: &str, body: Value) -> Value {
        for _ in 0..ATTEMPTS {
            let (code, response) = self.send_once(user, method, path, &body).await;
            if code < 300 {
                return response;
            }
            assert!(code >= 500, "{method} {path}: {code} {response}");
            assert!(response["message"].as_str().is_some_and(|text| !text.is_empty()));
            self.failures += 1;
            self.check().await;
            tokio::time::sleep(PAUSE).await;
        }
        panic!("{method} {path} does not succeed again");
    }

    /// Writes an object and expects it from then on.
    async fn write(&mut self, user: &UserInfo, method: &str, path: &str, body: Value) {
        let written = self.send(user, method, path, body).await;
        let name = written["metadata"]["name"].as_str().unwrap();
        let path = path.trim_end_matches("/status").split('?').next().unwrap();
        let path = if method == "POST" { format!("{path}/{name}") } else { path.to_owned() };
        self.expected.insert(path, Some(written));
    }

    async fn check(&self) {
        for (path, expected) in &self.expected {
            let (code, found) = self.send_once(&UserInfo::admin(), "GET", path, &Value::Null).await;
            match expected {
                Some(expected) => assert_eq!(&found, expected, "{path}"),
                None => assert_eq!(code, 404, "{path}: {found}"),
            }
        }
    }

    async fn run(&mut self) {
        let (admin, machine) = (UserInfo::admin(), UserInfo::node("a"));
        let map = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": text}});
        self.start().await;
        self.write(&admin, "POST", MAPS, map("1")).await;
        self.write(&admin, "PUT", &format!("{MAPS}/a"), map(&"2".repeat(50_000))).await;
        self.write(&admin, "PATCH", &format!("{MAPS}/a"), json!({"data": {"x": "3"}})).await;
        let apply = format!("{MAPS}/b?fieldManager=test");
        let mut applied = map("4");
        applied["metadata"]["name"] = json!("b");
        self.write(&admin, "PATCH", &apply, applied).await;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
        self.write(&machine, "POST", "/api/v1/nodes", node).await;
        let status = json!({"status": {"phase": "Running"}});
        self.write(&machine, "PATCH", "/api/v1/nodes/a/status", status).await;
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": "a"}, "reason": "R", "message": "m", "type": "Normal",
        });
        self.write(&machine, "POST", "/api/v1/namespaces/default/events", event).await;
        let csr = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": "c"},
            "spec": {"request": "QUFB", "signerName": "x.io/y", "usages": ["client auth"]},
        });
        self.write(&machine, "POST", CSRS, csr).await;
        let token = self.send(&admin, "POST", TOKENS, json!({"role": "viewer"})).await;
        self.stop().await;
        self.start().await;
        self.check().await;
        let (_, tokens) = self.send_once(&admin, "GET", TOKENS, &Value::Null).await;
        assert!(tokens.to_string().contains(token["id"].as_str().unwrap()), "{tokens}");
        let revoked = format!("{TOKENS}/{}", token["id"].as_str().unwrap());
        self.send(&admin, "DELETE", &revoked, Value::Null).await;
        self.send(&admin, "DELETE", &format!("{CSRS}/c"), Value::Null).await;
        self.expected.insert(format!("{CSRS}/c"), None);
        self.send(&admin, "DELETE", MAPS, Value::Null).await; // all of them
        for name in ["a", "b"] {
            self.expected.insert(format!("{MAPS}/{name}"), None);
        }
        self.stop().await;
        self.start().await;
        self.check().await;
        let (_, tokens) = self.send_once(&admin, "GET", TOKENS, &Value::Null).await;
        assert!(!tokens.to_string().contains(token["id"].as_str().unwrap()), "{tokens}");
        self.stop().await;
    }
}

/// Returns how many changes of the data directory there were, and how many requests and starts failed.
async fn session(failing: u64) -> (u64, u32) {
    let memory = std::path::PathBuf::from("/dev/shm");
    let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let control = FileControl::default();
    control.fail_change(failing, DISK_FULL);
    let dir = tempfile::tempdir_in(parent).unwrap();
    let mut session =
        FaultSession { dir, control, hub: None, expected: BTreeMap::new(), failures: 0 };
    session.run().await;
    (session.control.changes(), session.failures)
}

#[tokio::test]
async fn each_write_of_a_hub_may_fail_once() {
    let (changes, failures) = session(0).await;
    assert_eq!(failures, 0);
    let results = futures::stream::iter(1..=changes).map(session).buffer_unordered(32);
    let failures: Vec<u32> = results.map(|(_, failures)| failures).collect().await;
    let seen = failures.iter().filter(|failures| **failures > 0).count();
    println!("{changes} changes failed once each; {seen} failures reached a client or a start");
    assert!(changes > 100 && seen > failures.len() / 2, "{changes} {seen}");
}
