//! Every status, header and file of the HTTP contract.

use std::fs;
use std::io::Read as _;

use crate::server::fixture::{IGNITION, MASTER, ServerFixture, paths};
use serde_json::json;

#[test]
fn routes_and_methods() {
    let site = ServerFixture::new();
    let server = site.serve(&[]);
    for (method, path, status) in [
        ("GET", MASTER, 200),
        ("HEAD", MASTER, 200),
        ("POST", MASTER, 405),
        ("PUT", "/healthz", 405),
        ("DELETE", "/nothing", 405),
        ("GET", "/healthz", 200),
        ("HEAD", "/healthz", 200),
        ("GET", "/", 404),
        ("GET", "/metrics", 404),
        ("GET", "/healthz/", 404),
        ("GET", "/config/a/master", 200),
        ("GET", "/config/master/", 200),
        ("GET", "/config", 307),
        ("GET", "//config/master", 307),
        ("GET", "/config/../healthz", 307),
        ("GET", "/config/worker", 500),
        ("GET", "/config/arbiter", 404),
        ("GET", "/config/%2e%2e", 500),
        ("GET", "/config/..%2f..%2fmaster", 200),
        ("GET", "/config/master?etcd_index=1", 200),
        ("GET", "/config/master?etcd_index=x", 400),
        ("GET", "/config/%zz", 400),
        ("GET", "/config/..%2f..%2f..%2fetc%2fpasswd", 500),
        ("GET", "/config/master%00", 500),
        ("GET", "/config/%ff", 400),
        // These routes exist only with sealed configs.
        ("GET", "/sealed/master", 404),
        ("POST", "/enrol/master", 405),
    ] {
        let response = server.request(method, path, &[]);
        assert_eq!(response.status, status, "{method} {path}");
        if status >= 400 || path == "/healthz" {
            assert_eq!(response.header("content-length"), "0", "{method} {path}");
            assert_eq!(response.header("content-type"), "", "{method} {path}");
            assert_eq!(response.header("allow"), "", "{method} {path}");
            assert!(response.body.is_empty());
        }
    }
    assert_eq!(server.request("GET", "/config", &[]).header("location"), "/config/");
}

#[test]
fn head_is_get_without_the_body() {
    let site = ServerFixture::new();
    let server = site.serve(&[]);
    let (get, head) = (server.request("GET", MASTER, &[]), server.request("HEAD", MASTER, &[]));
    assert_eq!(get.header("content-type"), "application/json");
    assert_eq!(get.header("content-length"), get.body.len().to_string());
    assert!(head.body.is_empty());
    for name in ["content-type", "content-length", "etag", "vary"] {
        assert_eq!(get.header(name), head.header(name), "{name}");
    }
}

#[test]
fn ignition_versions_are_negotiated() {
    let site = ServerFixture::new();
    let server = site.serve(&[]);
    for (accept, status, version) in [
        ("*/*".to_owned(), 200, "2.2.0"),
        (
            format!("{IGNITION}; version=2.4.0, {IGNITION}; version=1; q=0.5, */*; q=0.1"),
            200,
            "2.2.0",
        ),
        // Ignition 0.35, verbatim: the last version that supports specification 2.
        (
            format!("{IGNITION}; version=2.2.0, {IGNITION}; version=1; q=0.5, */*; q=0.1"),
            200,
            "2.2.0",
        ),
        (format!("{IGNITION};version=3.1.0, */*;q=0.1"), 200, "3.1.0"),
        (format!("{IGNITION};version=3.2.7"), 200, "3.2.0"),
        (format!("{IGNITION};version=3.3.0, */*;q=0.1"), 200, "3.3.0"),
        (format!("{IGNITION};version=3.4.0-experimental"), 200, "3.4.0"),
        (format!("{IGNITION};version=3.6.0, */*;q=0.1"), 200, "3.5.0"),
        (format!("{IGNITION};version=1.0.0"), 400, ""),
        (format!("{IGNITION};version=2.0.0"), 400, ""),
        (format!("{IGNITION};version=3.5.0"), 200, "3.5.0"),
        (format!("{IGNITION};version=3.9.0"), 200, "3.5.0"),
        (format!("{IGNITION};version=3.0.0"), 500, ""),
        (format!("{IGNITION};version=2.1.0"), 400, ""),
        (format!("{IGNITION};version=4.0.0, {IGNITION};version=3.3.0;q=0.5"), 400, ""),
    ] {
        let response = server.get(MASTER, &accept);
        assert_eq!(response.status, status, "{accept}");
        if status == 200 {
            assert_eq!(response.json()["ignition"]["version"], version, "{accept}");
        }
    }
    // The version is checked before the pool.
    assert_eq!(server.get("/config/arbiter", &format!("{IGNITION};version=1.0.0")).status, 400);
}

#[test]
fn equal_requests_get_equal_responses() {
    let site = ServerFixture::new();
    let server = site.serve(&[]);
    let first = server.get(MASTER, "*/*");
    for _ in 0..10 {
        assert!(server.get(MASTER, "*/*").body == first.body);
    }
    let known = server.request("GET", MASTER, &[("If-None-Match", first.header("etag"))]);
    assert_eq!((known.status, known.body.len()), (304, 0));
    let packed = server.request("GET", MASTER, &[("Accept-Encoding", "gzip")]);
    assert_eq!(packed.header("content-encoding"), "gzip");
    let mut body = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut body).unwrap();
    assert!(body == first.body);
    assert_ne!(packed.header("etag"), first.header("etag"));
}

#[test]
fn changed_files_are_served_at_once() {
    let site = ServerFixture::new();
    site.write("base/extra/ca.crt", "PEM");
    let server = site.serve(&["--bootstrap-certs", "registry:5000=extra/ca.crt"]);
    let accept = format!("{IGNITION};version=3.5.0");
    let response = server.get(MASTER, &accept).json();
    assert_eq!(
        paths(&response),
        [
            "/etc/one",
            "/etc/kubernetes/kubelet-ca.crt",
            "/etc/machine-config-daemon/node-annotations.json",
            "/etc/kubernetes/kubeconfig",
            "/etc/mcs-machine-config-content.json",
            "/etc/docker/certs.d/registry:5000/ca.crt",
            "/etc/ignition-machine-config-encapsulated.json",
        ]
    );
    site.config("rendered-master-2", "/etc/two");
    site.pool("master", "rendered-master-2");
    assert_eq!(paths(&server.get(MASTER, &accept).json())[0], "/etc/two");
    // A missing config, a pool without one, a kubeconfig without clusters, a missing pool.
    site.pool("master", "rendered-master-3");
    assert_eq!(server.get(MASTER, &accept).status, 404);
    site.pool("master", "");
    let response = server.get(MASTER, &accept);
    assert_eq!((response.status, response.header("retry-after")), (503, "5"));
    site.pool("master", "rendered-master-1");
    site.write("kubeconfig", "clusters: []\n");
    assert_eq!(server.get(MASTER, &accept).status, 500);
    fs::remove_file(site.path("base/machine-pools/master.yaml")).unwrap();
    assert_eq!(server.get(MASTER, &accept).status, 404);
}

#[test]
fn all_pools_are_served_with_the_flag() {
    let site = ServerFixture::new();
    site.pool("worker", "rendered-master-1");
    let server = site.serve(&["--all-pools", "--unknown-pool=503"]);
    assert_eq!(server.get("/config/worker", "*/*").status, 200);
    assert_eq!(server.get("/config/..", "*/*").status, 307); // a path, not a pool
    assert_eq!(server.get("/config/%2e%2e", "*/*").status, 503);
}

#[test]
fn configs_that_a_version_cannot_express_are_refused() {
    let site = ServerFixture::new();
    let server = site.serve(&["--bootstrap-certs", "registry"]);
    assert_eq!(server.get(MASTER, "*/*").status, 500);
    let line = server.wait_for("answered");
    assert!(line.contains("could not use cert, missing key or value registry"), "{line}");
    let server = site.serve(&["--bootstrap-certs", "registry=nothing.crt"]);
    assert_eq!(server.get(MASTER, "*/*").status, 500);
    // Special permission bits need 3.4; removed kernel arguments need 3.3.
    let server = site.serve(&[]);
    let file = json!({"path": "/a", "mode": 0o4755, "contents": {"source": "data:,x"}});
    site.config_with("rendered-master-1", &json!({"storage": {"files": [file]}}));
    for (version, status) in [("3.5.0", 200), ("3.4.0", 200), ("3.3.0", 500), ("2.2.0", 500)] {
        let response = server.get(MASTER, &format!("{IGNITION};version={version}"));
        assert_eq!(response.status, status, "{version}");
        assert_eq!(response.body.is_empty(), status == 500);
    }
    let arguments = json!({"kernelArguments": {"shouldNotExist": ["quiet"]}});
    site.config_with("rendered-master-1", &arguments);
    for (version, status) in [("3.5.0", 200), ("3.3.0", 200), ("3.2.0", 500), ("2.2.0", 500)] {
        let response = server.get(MASTER, &format!("{IGNITION};version={version}"));
        assert_eq!(response.status, status, "{version}");
    }
}
