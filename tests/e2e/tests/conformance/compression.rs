//! Large responses are compressed for clients that ask for it; watches and small responses are not.

use super::ConformanceCheck;
use super::api_server::ApiServer;
use flate2::read::GzDecoder;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use kube::client::Body;
use machinist_e2e::block_on;
use serde_json::{Value, json};
use std::io::Read as _;

pub const CHECKS: &[ConformanceCheck] = &[
    ("large responses are compressed for who asks", large_responses),
    ("kubectl reads compressed objects", kubectl_reads),
];

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn create(api_server: &ApiServer, name: &str, line: &str, count: usize) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"suite": "gzip"}},
        "data": {"text": line.repeat(count)},
    });
    assert_eq!(api_server.post(MAPS, &map).code, 201);
}

/// A response as it is on the wire.
fn raw(api_server: &ApiServer, path: &str, encoding: Option<&str>) -> (HeaderMap, Vec<u8>) {
    let mut request = http::Request::get(path).header("accept", "application/json");
    if let Some(encoding) = encoding {
        request = request.header("accept-encoding", encoding);
    }
    let request = request.body(Body::empty()).unwrap();
    block_on(async {
        let response = api_server.client().send(request).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let headers = response.headers().clone();
        (headers, response.into_body().collect().await.unwrap().to_bytes().to_vec())
    })
}

fn large_responses(api_server: &ApiServer) {
    create(api_server, "gzip-large", "a line of a large config\n", 12_000);
    create(api_server, "gzip-small", "a line of a small config\n", 100);
    let large = format!("{MAPS}/gzip-large");
    for path in [large.clone(), format!("{MAPS}?labelSelector=suite%3Dgzip")] {
        let (headers, plain) = raw(api_server, &path, None);
        assert!(!headers.contains_key("content-encoding") && plain.len() > 300_000, "{path}");
        let (headers, packed) = raw(api_server, &path, Some("deflate, gzip"));
        assert_eq!(headers["content-encoding"], "gzip", "{path}");
        let varies = headers.get_all("vary").iter();
        assert!(varies.into_iter().any(|value| value == "Accept-Encoding"), "{path}");
        assert!(packed.len() < 30_000, "{path}: {} bytes", packed.len());
        let mut text = Vec::new();
        GzDecoder::new(packed.as_slice()).read_to_end(&mut text).unwrap();
        // The revision of a list is that of the API server.
        let parse = |text: &[u8]| {
            let mut value: Value = serde_json::from_slice(text).unwrap();
            if value["items"].is_array() {
                value["metadata"] = Value::Null;
            }
            value
        };
        assert_eq!(parse(&text), parse(&plain), "{path}");
    }
    let watch =
        format!("{MAPS}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dgzip-large");
    let watch = watch + "&resourceVersion=0";
    for (path, encoding) in [
        (format!("{MAPS}/gzip-small"), Some("gzip")),
        (large.clone(), Some("identity")),
        (large, Some("gzip;q=0")),
        (watch, Some("gzip")),
    ] {
        let (headers, body) = raw(api_server, &path, encoding);
        assert!(!headers.contains_key("content-encoding"), "{path} {encoding:?}");
        assert!(body.starts_with(b"{"), "{path}");
    }
}

fn kubectl_reads(api_server: &ApiServer) {
    create(api_server, "gzip-kubectl", "a line for kubectl\n", 20_000);
    let get = ["get", "configmap", "gzip-kubectl", "-o", "json"];
    let packed = api_server.kubectl(&[&get[..], &["-v=8"]].concat()).unwrap();
    let plain =
        api_server.kubectl(&[&get[..], &["-v=8", "--disable-compression"]].concat()).unwrap();
    assert!(packed.succeeded() && packed.stdout == plain.stdout && packed.stdout.len() > 380_000);
    // Go removes Content-Encoding when it unpacks.
    let varies = |log: &str| log.to_lowercase().contains("vary: accept-encoding");
    assert!(varies(&packed.stderr), "{}", packed.stderr.get(..3000).unwrap_or(&packed.stderr));
    assert!(!varies(&plain.stderr));
}
