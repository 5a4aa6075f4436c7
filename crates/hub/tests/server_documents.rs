//! Responses that are not objects: OpenAPI, metrics, and what no accepted media type fits.
use crate::support;

use http::StatusCode;
use serde_json::json;
use support::TestHub;

#[tokio::test]
async fn unacceptable_media_types() {
    let server = TestHub::start().await;
    let known = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    let only = |list: &str| format!("only the following media types are accepted: {list}");
    let none = |list: &str| format!("406: Not Acceptable\n\nAvailable representations: {list}");
    let maps = "/api/v1/namespaces/default/configmaps";
    for (path, accept, expected) in [
        ("/api", "text/html", none(known)),
        ("/apis", "text/html", only(known)),
        ("/api/v1", "text/html", none(known)),
        ("/version", "text/html", none("application/json")),
        (maps, "text/html", none(&format!("{known}, {streams}"))),
        (maps, "application/json;as=Foo;v=v1;g=meta.k8s.io", only(known)),
        ("/apis/g.io/v1/things", "text/html", only(known)),
        ("/api/v1/configmaps?watch=true&timeoutSeconds=1", "application/yaml", only(streams)),
    ] {
        let headers = [("accept", accept)];
        let (code, body) = server.send("GET", path, &headers, String::new()).await;
        assert_eq!((code.as_u16(), &body["message"]), (406, &json!(expected)), "{path} {accept}");
    }
}

#[tokio::test]
async fn metrics_are_for_those_who_may_read_them() {
    use machinist_hub::auth::{UserInfo, VIEWER_GROUP};
    let server = TestHub::start().await;
    let viewer = UserInfo::new("v", [VIEWER_GROUP.to_owned()]);
    server.send("GET", "/version", &[], String::new()).await; // so that there is a counter
    for (user, expected) in [(UserInfo::admin(), 200), (viewer, 200), (UserInfo::node("a"), 403)] {
        let router = server.hub.router_as(user);
        let (code, text) = support::send(router, "GET", "/metrics", &[], String::new()).await;
        assert_eq!(code.as_u16(), expected, "{text}");
        let counters = text.as_str().unwrap_or_default();
        let is_declared = counters.contains("# TYPE machinist_hub_requests_total counter\n");
        assert_eq!(is_declared, expected == 200, "{text}");
    }
    let (code, _) = server.send("POST", "/metrics", &[], String::new()).await;
    assert_eq!(code, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn openapi_2_in_both_encodings() {
    let server = TestHub::start().await;
    let get = async |accept: &str, known: &str| {
        let request = http::Request::get("/openapi/v2").header("accept", accept);
        let request = request.header("if-none-match", known).body(axum::body::Body::empty());
        let router = server.hub.router_as(machinist_hub::auth::UserInfo::admin());
        let response = tower::ServiceExt::oneshot(router, request.unwrap()).await.unwrap();
        let header = |name: &str| response.headers()[name].to_str().unwrap_or_default().to_owned();
        (response.status().as_u16(), header("content-type"), header("etag"), header("vary"))
    };
    let (code, kind, tag, vary) = get("application/json", "").await;
    assert_eq!((code, &*kind, &*vary), (200, "application/json", "Accept"));
    for name in ["spec.v2@v1.0", "spec.v2.v1.0"] {
        let accept = format!("application/com.github.proto-openapi.{name}+protobuf");
        let (code, kind, other, _) = get(&accept, "\"other\"").await;
        assert_eq!(kind, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
        assert_eq!((code, &other), (200, &tag));
        assert_eq!(get(&accept, &tag).await.0, 304);
    }
}
