//! What clients in Go see: the OpenAPI 2 document as client-go reads it, and watches over WebSocket.

use super::ConformanceCheck;
use machinist_e2e::api_server::ApiServer;
use machinist_e2e::{cache, command};
use serde_json::json;
use std::process::Command;

pub const CHECKS: &[ConformanceCheck] = &[
    ("client-go reads the OpenAPI 2 document", openapi),
    ("a watch over WebSocket has one event per frame", websocket),
];

/// Builds one of the commands in `tests/e2e/informer` and runs it against the API server.
fn run(api_server: &ApiServer, name: &str, arguments: &[&str]) -> String {
    let binary = api_server.dir().join(name);
    let mut go = Command::new("go");
    go.current_dir(cache::source_root().join("tests/e2e/informer"));
    go.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=readonly -buildvcs=false");
    command::run(go.args(["build", "-o"]).arg(&binary).arg(format!("./{name}"))).unwrap();
    let mut run = Command::new(binary);
    run.arg("-kubeconfig").arg(api_server.kubeconfig()).args(arguments);
    let output = command::output(&mut run).unwrap();
    assert!(output.succeeded(), "{}: {name}: {output:?}", api_server.name);
    output.stdout
}

fn openapi(api_server: &ApiServer) {
    let found = run(api_server, "openapi", &[]);
    let count: usize = found.trim().strip_suffix(" kinds").unwrap().parse().unwrap();
    assert!(count >= 20, "{found}");
}

fn websocket(api_server: &ApiServer) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "websocket"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(api_server.post(maps, &map).code, 201);
    // From the cache, which kube-apiserver fills a little later.
    let options = "watch=true&resourceVersion=0&timeoutSeconds=3";
    let path = format!("{maps}?{options}&fieldSelector=metadata.name%3Dwebsocket");
    let found = run(api_server, "websocket", &["-path", &path]);
    let event = "frame of type 1, ADDED websocket, line end true, EOF";
    let expected = [
        format!("[]: protocol [], {event}"),
        format!("[base64.binary.k8s.io]: protocol [base64.binary.k8s.io], {event}"),
        format!("[v4.channel.k8s.io]: protocol [v4.channel.k8s.io], {event}"),
        "[a b]: refused".to_owned(),
        "without Origin: 403 Forbidden".to_owned(),
        "without Sec-WebSocket-Key: 400 Bad Request".to_owned(),
        "without Sec-WebSocket-Version: 400 Bad Request".to_owned(),
        "without Connection: 200 OK".to_owned(),
        "without Upgrade: 200 OK".to_owned(),
    ];
    assert_eq!(found.lines().collect::<Vec<_>>(), expected, "{}", api_server.name);
}
