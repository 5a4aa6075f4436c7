//! Who may put a binary on a hub, and who may fetch it. Whoever could put one there, and say that it is to be run, would be
//! root on every machine.
use axum::body::Body;
use http_body_util::BodyExt as _;
use machinist_hub::audit::AuditLog;
use machinist_hub::auth::{CONTROLLER_GROUP, UserInfo, VIEWER_GROUP};
use machinist_hub::store::{Store, StoreOptions};
use machinist_hub::{Hub, HubConfig};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tower::ServiceExt as _;

const UPGRADE: &str = "machinist.dev/upgrade";
const BINARY: &[u8] = b"#!/bin/sh\necho machinist 9.9.9\n";

struct Fixture {
    hub: Hub,
    directory: tempfile::TempDir,
}

impl Fixture {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = HubConfig {
            audit: AuditLog::to_file(&directory.path().join("audit.log")).unwrap(),
            binaries: Some(directory.path().join("binaries")),
            protected_annotations: vec![UPGRADE.to_owned()],
            version: "0.1.0".to_owned(),
            ..HubConfig::default()
        };
        let store = Store::in_memory(StoreOptions::default());
        Self { hub: Hub::start(store, config).await.unwrap(), directory }
    }

    async fn send(
        &self,
        user: Option<&UserInfo>,
        method: &str,
        path: &str,
        body: Body,
    ) -> (u16, Vec<u8>) {
        let router = match user {
            Some(user) => self.hub.router_as(user.clone()),
            None => self.hub.router(),
        };
        let kind =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", kind);
        let response = router.oneshot(request.body(body).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        (code, response.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    async fn put(
        &self,
        user: Option<&UserInfo>,
        digest: &str,
        size: usize,
        body: &[u8],
    ) -> (u16, String) {
        let path = format!("/machinist/v1/binaries/{digest}?size={size}");
        let (code, text) = self.send(user, "PUT", &path, Body::from(body.to_vec())).await;
        (code, String::from_utf8_lossy(&text).into_owned())
    }

    fn stored(&self) -> usize {
        std::fs::read_dir(self.directory.path().join("binaries")).map_or(0, Iterator::count)
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn others() -> [UserInfo; 5] {
    let group = |group: &str| [group.to_owned()];
    [
        UserInfo::node("w1"),
        UserInfo::new("system:bootstrap:a", group("system:bootstrappers")),
        UserInfo::new("machinist:token:v", group(VIEWER_GROUP)),
        UserInfo::new("machinist:controller", group(CONTROLLER_GROUP)),
        UserInfo::new("admin", []),
    ]
}

#[tokio::test]
async fn only_administrators_put_binaries_and_machines_fetch_them() {
    let fixture = Fixture::start().await;
    let (admin, machine, sha256) = (UserInfo::admin(), UserInfo::node("w1"), digest(BINARY));
    for user in &others() {
        let (code, text) = fixture.put(Some(user), &sha256, BINARY.len(), BINARY).await;
        assert_eq!((code, fixture.stored()), (403, 0), "{user:?}: {text}");
    }
    assert_eq!(fixture.put(None, &sha256, BINARY.len(), BINARY).await.0, 401);

    let list = "/machinist/v1/binaries";
    let path = format!("{list}/{sha256}");
    assert_eq!(fixture.send(Some(&machine), "GET", &path, Body::empty()).await.0, 404);
    let (code, text) = fixture.put(Some(&admin), &sha256, BINARY.len(), BINARY).await;
    assert_eq!((code, fixture.stored()), (201, 1), "{text}");
    for user in [&admin, &machine] {
        let (code, body) = fixture.send(Some(user), "GET", &path, Body::empty()).await;
        assert_eq!((code, body.as_slice()), (200, BINARY), "{user:?}");
    }
    // Bootstrap tokens, viewers and controllers have no use for it.
    for user in &others()[1..] {
        assert_eq!(fixture.send(Some(user), "GET", &path, Body::empty()).await.0, 403, "{user:?}");
    }
    assert_eq!(fixture.send(None, "GET", &path, Body::empty()).await.0, 401);
    // Only administrators see which there are, and nobody deletes or posts.
    assert_eq!(fixture.send(Some(&machine), "GET", list, Body::empty()).await.0, 403);
    let (code, body) = fixture.send(Some(&admin), "GET", list, Body::empty()).await;
    let found: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (code, &found["uploaded"]),
        (200, &json!([{"sha256": sha256, "size": BINARY.len()}]))
    );
    assert_eq!(found["own"]["version"], "0.1.0");
    for method in ["POST", "DELETE", "PATCH"] {
        assert_eq!(fixture.send(Some(&admin), method, &path, Body::empty()).await.0, 405);
        assert_eq!(fixture.send(Some(&machine), method, &path, Body::empty()).await.0, 403);
    }
    // The audit log has what administrators put, and not what others tried.
    let audit = std::fs::read_to_string(fixture.directory.path().join("audit.log")).unwrap();
    let lines: Vec<&str> = audit.lines().filter(|line| line.contains("\"binaries\"")).collect();
    assert_eq!(lines.len(), 1, "{audit}");
    assert!(lines[0].contains(&sha256) && lines[0].contains("\"code\":201"), "{audit}");
}

#[tokio::test]
async fn an_upload_that_is_not_what_it_says_is_refused() {
    let fixture = Fixture::start().await;
    let (admin, sha256) = (UserInfo::admin(), digest(BINARY));
    let cases: [(&str, usize, &[u8], &str); 9] = [
        (&sha256, BINARY.len(), b"another binary of the same len\n", "SHA-256"),
        (&sha256, BINARY.len(), &BINARY[..7], "ended after 7 of"),
        (&sha256, 7, BINARY, "more than the 7 bytes"),
        (&sha256, 0, b"", "1 to"),
        (&sha256, 1 << 40, BINARY, "1 to"),
        // The hub has no such paths.
        ("..%2F..%2Fpki%2Fca.crt", BINARY.len(), BINARY, "NotFound"),
        ("../../pki/ca.crt", BINARY.len(), BINARY, "NotFound"),
        (&sha256[1..], BINARY.len(), BINARY, "digest"),
        ("", BINARY.len(), BINARY, ""),
    ];
    for (digest, size, body, part) in cases {
        let (code, text) = fixture.put(Some(&admin), digest, size, body).await;
        assert!(
            matches!(code, 400 | 404 | 405) && text.contains(part),
            "{digest} {size}: {code} {text}"
        );
        assert_eq!(fixture.stored(), 0, "{digest} {size}");
    }
    let path = format!("/machinist/v1/binaries/{sha256}");
    let (code, text) = fixture.send(Some(&admin), "PUT", &path, Body::from(BINARY.to_vec())).await;
    assert_eq!(code, 400, "{}", String::from_utf8_lossy(&text));
}

#[tokio::test]
async fn a_machine_does_not_say_what_it_runs() {
    let fixture = Fixture::start().await;
    let (admin, machine) = (UserInfo::admin(), UserInfo::node("w1"));
    let node = |name: &str, annotations: Value| {
        let metadata = json!({"name": name, "annotations": annotations});
        Body::from(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}).to_string())
    };
    let patch = |value: &Value| {
        Body::from(json!({"metadata": {"annotations": {UPGRADE: value, "x": "1"}}}).to_string())
    };
    let nodes = "/api/v1/nodes";
    let asked = json!({UPGRADE: "{}"});
    let made = fixture.send(Some(&machine), "POST", nodes, node("w1", asked.clone())).await;
    assert_eq!(made.0, 403);
    assert_eq!(fixture.send(Some(&machine), "POST", nodes, node("w1", json!({}))).await.0, 201);
    assert_eq!(fixture.send(Some(&admin), "POST", nodes, node("w2", json!({}))).await.0, 201);
    for path in ["/api/v1/nodes/w1", "/api/v1/nodes/w1/status", "/api/v1/nodes/w2"] {
        let (code, text) = fixture.send(Some(&machine), "PATCH", path, patch(&json!("{}"))).await;
        let text = String::from_utf8_lossy(&text);
        assert_eq!(code, 403, "{path}: {text}");
    }
    assert_eq!(
        fixture.send(Some(&admin), "PATCH", "/api/v1/nodes/w1", patch(&json!("{}"))).await.0,
        200
    );
    // It may write the rest of its Node, and take the request away, as when it leaves.
    let other = Body::from(json!({"metadata": {"annotations": {"y": "1"}}}).to_string());
    assert_eq!(fixture.send(Some(&machine), "PATCH", "/api/v1/nodes/w1", other).await.0, 200);
    let changed = patch(&json!("{ }"));
    assert_eq!(fixture.send(Some(&machine), "PATCH", "/api/v1/nodes/w1", changed).await.0, 403);
    let gone = patch(&Value::Null);
    assert_eq!(fixture.send(Some(&machine), "PATCH", "/api/v1/nodes/w1", gone).await.0, 200);
}
