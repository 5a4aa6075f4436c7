//! Clients that let the hub compress: what one identity may have compressed is bounded, and so is the memory of responses
//! that nobody reads.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use machinist_hub::auth::UserInfo;
use serde_json::json;
use tower::ServiceExt as _;

use crate::support::TestHub;

const OWN: &str = "/api/v1/nodes/a";

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

async fn ask(hub: &TestHub, user: UserInfo, path: &str) -> Response {
    let request = Request::get(path).header("accept-encoding", "gzip");
    let request = request.body(Body::empty()).unwrap();
    hub.hub.router_as(user).oneshot(request).await.unwrap()
}

fn is_packed(headers: &HeaderMap) -> bool {
    headers.get("content-encoding").is_some_and(|encoding| encoding == "gzip")
}

#[tokio::test]
async fn who_reads_again_and_again_gets_plain_text() {
    let hub = hub_with_large_node().await;
    let start = std::time::Instant::now();
    let mut compressed = 0;
    for request in 0.. {
        let response = ask(&hub, UserInfo::node("a"), OWN).await;
        assert_eq!(response.status(), StatusCode::OK);
        let is_packed = is_packed(response.headers());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.len() < 10_000, is_packed, "{}", body.len());
        if !is_packed {
            break;
        }
        compressed += 250_000;
        // 32 MiB, and 2 MiB for each second.
        let allowed = f64::from(32 << 20) + start.elapsed().as_secs_f64() * f64::from(2 << 20);
        assert!(f64::from(compressed) <= allowed, "{compressed} bytes after {request} requests");
    }
    assert!(compressed > 30 << 20, "{compressed} bytes");
    let list = "/api/v1/nodes?fieldSelector=metadata.name%3Da";
    assert!(!is_packed(ask(&hub, UserInfo::node("a"), list).await.headers()));
}

#[tokio::test]
async fn encoders_of_unread_responses_count_as_memory() {
    let hub = hub_with_large_node().await;
    for path in [OWN, "/api/v1/nodes?fieldSelector=metadata.name%3Da"] {
        let mut unread = Vec::new();
        let refused = loop {
            let response = ask(&hub, UserInfo::node("a"), path).await;
            if response.status() != 200 {
                break response;
            }
            assert!(is_packed(response.headers()));
            unread.push(response);
        };
        // 8 MiB in all, of which each takes half a MiB for its encoder besides its text.
        assert_eq!(refused.status(), 429, "{path}");
        assert!((8..=16).contains(&unread.len()), "{path}: {}", unread.len());
        for response in unread {
            response.into_body().collect().await.unwrap();
        }
        assert_eq!(ask(&hub, UserInfo::node("a"), path).await.status(), 200);
    }
}
