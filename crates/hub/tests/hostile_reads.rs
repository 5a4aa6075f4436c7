//! Clients that read too much at once, or nothing: each is limited to its own share, and others are served.
use axum::body::Body;
use axum::response::Response;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use machinist_hub::auth::{UserInfo, VIEWER_GROUP};
use machinist_hub::server::ConnectionLimits;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tower::ServiceExt as _;

use crate::support::tls_hub::TlsHub;
use crate::support::{TestHub, send};

const NODE: &str = "/api/v1/nodes/a";

/// A hub with a Node of 250 KB for the machine `a`.
async fn hub_with_large_node() -> TestHub {
    let hub = TestHub::start().await;
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "a", "annotations": {"x": "x".repeat(250_000)}},
    });
    let (code, body) = hub.send("POST", "/api/v1/nodes", &[], node.to_string()).await;
    assert_eq!(code, 201, "{body}");
    hub
}

/// Sends a request and does not read the response.
async fn ask(hub: &TestHub, user: UserInfo, method: &str, path: &str, body: &str) -> Response {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/merge-patch+json");
    let request = request.body(Body::from(body.to_owned())).unwrap();
    hub.hub.router_as(user).oneshot(request).await.unwrap()
}

async fn get(hub: &TestHub, user: UserInfo, path: &str) -> Response {
    ask(hub, user, "GET", path, "").await
}

#[tokio::test]
async fn responses_that_a_machine_does_not_read_are_limited() {
    let hub = hub_with_large_node().await;
    let own = "/api/v1/nodes?fieldSelector=metadata.name%3Da";
    let forms = [NODE.to_owned(), own.to_owned(), format!("{own}&pretty=true")];
    for path in forms {
        let mut unread = Vec::new();
        let refused = loop {
            let response = get(&hub, UserInfo::node("a"), &path).await;
            if response.status() != 200 {
                break response;
            }
            unread.push(response);
            assert!(unread.len() <= 200, "{path}: 50 MB are unread");
        };
        assert_eq!(refused.status(), 429, "{path}");
        assert_eq!(refused.headers()["retry-after"], "1");
        assert!(unread.len() >= 8, "{path}: an ordinary client needs {}", unread.len());
        // Others are served, and the machine is once it has read.
        assert_eq!(get(&hub, UserInfo::admin(), &path).await.status(), 200);
        let mut other = get(&hub, UserInfo::node("b"), "/api/v1/nodes/b").await;
        assert_eq!(other.status(), 404);
        assert!(other.body_mut().frame().await.is_some());
        for response in unread {
            response.into_body().collect().await.unwrap();
        }
        assert_eq!(get(&hub, UserInfo::node("a"), &path).await.status(), 200, "{path}");
    }
}

/// A write that was done never fails for its response: the request is refused before.
#[tokio::test]
async fn responses_of_writes_are_limited_before_the_write() {
    let hub = hub_with_large_node().await;
    let mut unread = Vec::new();
    for n in 0..100 {
        let patch = json!({"metadata": {"labels": {"n": n.to_string()}}}).to_string();
        let response = ask(&hub, UserInfo::node("a"), "PATCH", NODE, &patch).await;
        let (_, node) = hub.send("GET", NODE, &[], String::new()).await;
        let is_written = node["metadata"]["labels"]["n"].as_str() == Some(&n.to_string());
        assert_eq!(response.status() == StatusCode::OK, is_written, "{n}");
        if response.status() == 429 {
            assert!(n > 20, "{n}");
            return;
        }
        unread.push(response);
    }
    panic!("25 MB are unread");
}

#[tokio::test]
async fn watches_are_limited_for_each_identity() {
    let hub = TestHub::start().await;
    let watch = "/apis/g.io/v1/things?watch=true";
    let mut open = Vec::new();
    let refused = loop {
        let response = get(&hub, UserInfo::node("a"), watch).await;
        if response.status() != 200 {
            break response;
        }
        open.push(response);
    };
    assert_eq!((refused.status().as_u16(), open.len()), (429, 50));
    let text = refused.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&text).contains("50 open watches"));
    assert_eq!(get(&hub, UserInfo::node("b"), watch).await.status(), 200);
    assert_eq!(get(&hub, UserInfo::node("a"), "/apis/g.io/v1/things").await.status(), 200);
    open.pop();
    assert_eq!(get(&hub, UserInfo::node("a"), watch).await.status(), 200);
    let admin: Vec<_> =
        futures::future::join_all((0..3000).map(|_| get(&hub, UserInfo::admin(), watch))).await;
    assert!(
        admin.iter().all(|response| response.status() == 200),
        "administrators are not limited"
    );
}

/// Watches whose clients read nothing wait for each other, and go on when one is read.
#[tokio::test]
async fn events_that_a_machine_does_not_read_are_limited() {
    let hub = hub_with_large_node().await;
    let watch = "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Da";
    let mut open = Vec::new();
    for n in 0..50 {
        let response = get(&hub, UserInfo::node("a"), watch).await;
        assert_eq!(response.status(), 200, "{n}");
        open.push(response.into_body());
    }
    // Each is asked for an event once, as HTTP/2 does for a client with a window of one byte.
    let mut encoded = 0;
    for body in &mut open {
        if let Some(Some(Ok(frame))) = futures::FutureExt::now_or_never(body.frame()) {
            encoded += frame.into_data().unwrap().len();
        }
    }
    assert!((1 << 20..=8 << 20).contains(&encoded), "{encoded} bytes are unread");
    let mut other = get(&hub, UserInfo::admin(), watch).await.into_body();
    assert!(other.frame().await.is_some(), "administrators are not limited");
    let last = open.pop().unwrap();
    open.truncate(10);
    let mut last = last;
    let event = tokio::time::timeout(std::time::Duration::from_secs(10), last.frame()).await;
    let event = event.expect("there is memory now").unwrap().unwrap().into_data().unwrap();
    assert!(event.starts_with(b"{\"type\":\"ADDED\"") && event.len() > 250_000);
}

/// A viewer's token is shared: a list of all objects is large, and several at a time are possible because none is made as
/// a whole.
#[tokio::test]
async fn lists_that_are_larger_than_the_share_are_streamed() {
    let hub = TestHub::start().await;
    let viewer = || UserInfo::new("machinist:token:v", [VIEWER_GROUP.to_owned()]);
    for n in 0..75 {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")},
            "data": {"x": "x".repeat(1_000_000)},
        });
        let path = "/api/v1/namespaces/default/configmaps";
        assert_eq!(hub.send("POST", path, &[], map.to_string()).await.0, 201);
    }
    for user in [viewer(), UserInfo::admin()] {
        let whole = get(&hub, user, "/api/v1/configmaps?pretty=true").await;
        assert_eq!(whole.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
    let large = "/api/v1/configmaps";
    let (first, second) = (get(&hub, viewer(), large).await, get(&hub, viewer(), large).await);
    assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
    let text = first.into_body().collect().await.unwrap().to_bytes();
    assert!(text.len() > 70 << 20 && text.ends_with(b"\n"));
}

/// One HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags][..], &stream.to_be_bytes()].concat();
    [&head[..], payload].concat()
}

/// `GET /readyz` on many streams of a client whose window is 0 bytes.
fn requests_without_window(streams: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    let head = [&[0x82, 0x87, 4, 7][..], b"/readyz", &[1, 3], b"hub"].concat();
    for stream in 0..streams {
        bytes.extend(frame(1, 5, stream * 2 + 1, &head));
    }
    bytes
}

/// Each stream keeps a few kilobytes until its response is read: an anonymous client may not collect them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_anonymous_client_that_reads_nothing_is_disconnected() {
    let server = TlsHub::start(ConnectionLimits::default()).await;
    let machine = server.machine("a");
    for (identity, streams, is_ended) in
        [(None, 10, false), (None, 200, true), (Some(&machine), 90, false)]
    {
        let mut connection = server.connect(identity, b"h2").await;
        connection.write_all(&requests_without_window(streams)).await.unwrap();
        connection.flush().await.unwrap();
        let mut rest = Vec::new();
        let timeout = std::time::Duration::from_secs(if is_ended { 20 } else { 1 });
        let ended = tokio::time::timeout(timeout, connection.read_to_end(&mut rest)).await;
        assert_eq!(ended.is_ok(), is_ended, "{streams} streams, machine: {}", identity.is_some());
    }
    let router = server.hub.router_as(UserInfo::admin());
    assert_eq!(send(router, "GET", "/readyz", &[], String::new()).await.0, 200);
}

/// In memory an object takes up to fifty times its text. However many there are, a table or a redacted list decodes one at
/// a time, and is made while it is read; a form that has to be made as a whole is for short lists.
#[tokio::test]
async fn long_lists_are_not_decoded_at_once() {
    let hub = TestHub::start().await;
    for n in 0..12 {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("n{n}"), "annotations": {"x": "x".repeat(200_000)}},
            "status": {"addresses": [{"type": "x".repeat(700_000), "address": "a"}]},
        });
        let (code, body) = hub.send("POST", "/api/v1/nodes", &[], node.to_string()).await;
        assert_eq!(code, 201, "{body}");
    }
    let viewer = || UserInfo::new("v", [VIEWER_GROUP.to_owned()]);
    let list = async |accept: &str, query: &str| {
        let request = Request::get(format!("/api/v1/nodes{query}")).header("accept", accept);
        let request = request.body(Body::empty()).unwrap();
        hub.hub.router_as(viewer()).oneshot(request).await.unwrap()
    };
    for form in ["Table", "PartialObjectMetadataList"] {
        let response = list(&format!("application/json;as={form};g=meta.k8s.io;v=v1"), "").await;
        assert_eq!(response.status(), 200);
        assert_eq!(
            response.body().size_hint().exact(),
            None,
            "{form}: it is made while it is read"
        );
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let found: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let items = if form == "Table" { &found["rows"] } else { &found["items"] };
        assert_eq!(items.as_array().unwrap().len(), 12, "{form}");
    }
    for (accept, query) in [("application/yaml", ""), ("application/json", "?pretty=true")] {
        let response = list(accept, query).await;
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE, "{accept}{query}");
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&text).contains("in pages (limit)"), "{text:?}");
        let limit = if query.is_empty() { "?limit=5" } else { "?pretty=true&limit=5" };
        assert_eq!(list(accept, limit).await.status(), 200, "{accept}{limit}");
    }
}
