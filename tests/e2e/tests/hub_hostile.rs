//! Malicious and broken clients: clear responses, bounded memory, no effect on others.
use crate::hub_support;

use hub_support::HubProcess;
use hub_support::raw::{
    RawHttpResponse, RawTlsDialer, TlsConnection, http2_without_window, request,
};
use machinist_e2e::environment::{env_number, raise_file_limit};
use machinist_e2e::{block_on, measurements, wait_with_timeout};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: (&str, &str) = ("content-type", "application/json");
const YAML: (&str, &str) = ("content-type", "application/yaml");
const PROTOBUF: (&str, &str) = ("content-type", "application/vnd.kubernetes.protobuf");

pub(crate) fn dialer(hub: &HubProcess) -> RawTlsDialer {
    RawTlsDialer::new(&hub.kubeconfig(), &hub.address()).unwrap()
}

/// The slowest of ten ordinary requests, each on its own connection.
pub(crate) fn worst_latency(dialer: &RawTlsDialer) -> Duration {
    let request_bytes = |_| {
        let start = Instant::now();
        let response =
            dialer.request(&request("GET", &format!("{POOLS}/worker"), &[], b"")).unwrap();
        assert_eq!(response.code, 200);
        start.elapsed()
    };
    (0..10).map(request_bytes).max().unwrap_or_default()
}

fn is_status(response: &RawHttpResponse, code: u16) -> bool {
    let body = response.json();
    response.code == code && body["kind"] == "Status" && body["code"] == code
}

fn config_of(size: usize) -> Vec<u8> {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "large"}, "spec": {"kernelArguments": ["x".repeat(size)]},
    })
    .to_string()
    .into_bytes()
}

fn chunked(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in body.chunks(60_000) {
        bytes.extend(format!("{:x}\r\n", piece.len()).into_bytes());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// Each request, with the status code that refuses it.
fn bad_requests() -> Vec<(&'static str, Vec<u8>, u16)> {
    let post = |headers: &[(&str, &str)], body: &[u8]| request("POST", POOLS, headers, body);
    let get = |path: &str| request("GET", path, &[], b"");
    let laughs = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n";
    let chunks = ("transfer-encoding", "chunked");
    vec![
        ("no body", post(&[JSON], b""), 400),
        ("half of JSON", post(&[JSON], b"{\"kind\": \"Machine"), 400),
        ("two values", post(&[JSON], b"{}{}"), 400),
        ("not UTF-8", post(&[JSON], b"{\"kind\": \"\xff\xfe\"}"), 400),
        ("nested without end", post(&[JSON], &b"[".repeat(1 << 20)), 400),
        ("objects without end", post(&[JSON], &b"{\"a\":".repeat(1 << 18)), 400),
        ("a list", post(&[JSON], b"[1, 2]"), 400),
        ("a huge number", post(&[JSON], b"{\"a\": 1e999999}"), 400),
        ("bad YAML", post(&[YAML], b"a: [b\n c: }"), 400),
        ("a billion laughs", post(&[YAML], laughs.as_bytes()), 400),
        ("YAML without end", post(&[YAML], &b"- ".repeat(1 << 18)), 400),
        ("protobuf", post(&[PROTOBUF], b"k8s\0\x0a\x04\x0a\x00\x12\x00"), 415),
        ("not even protobuf", post(&[PROTOBUF], b"k8s"), 415),
        ("plain text", post(&[("content-type", "text/plain")], b"x"), 415),
        ("no media type at all", post(&[("content-type", "///")], b"{}"), 415),
        ("4 MB", request("POST", CONFIGS, &[JSON], &config_of(4 << 20)), 413),
        (
            "4 MB in chunks",
            request("POST", CONFIGS, &[JSON, chunks], &chunked(&config_of(4 << 20))),
            413,
        ),
        ("20 MB", request("POST", CONFIGS, &[JSON], &config_of(20 << 20)), 413),
        ("two slashes", get("//api/v1/nodes"), 404),
        ("slashes inside", get("/api/v1//nodes"), 404),
        ("up", get("/api/v1/nodes/../secrets"), 404),
        ("up, encoded", get("/api/v1/nodes/%2e%2e/secrets"), 404),
        ("up, encoded twice", get("/api/v1/nodes/%252e%252e"), 404),
        ("a slash, encoded", get("/api/v1/nodes/a%2fb"), 404),
        ("a backslash", get("/api/v1/nodes/%5c..%5c"), 404),
        ("nothing, encoded", get("/api/v1/nodes/a%00b"), 404),
        ("half of an escape", get("/api/v1/nodes/%4"), 404),
        ("not UTF-8 in the path", get("/api/v1/nodes/%ff%fe"), 404),
        ("a long path", get(&format!("/api/v1/nodes/{}", "a".repeat(20_000))), 404),
        ("many segments", get(&"/a".repeat(10_000)), 404),
        ("half of an escape in the query", get("/api/v1/nodes?labelSelector=%4"), 400),
        ("a bad selector", get("/api/v1/nodes?labelSelector=a%20in%20((("), 400),
        (
            "a long selector",
            get(&format!("/api/v1/nodes?labelSelector={}", "(".repeat(30_000))),
            400,
        ),
        ("a revision that is none", get("/api/v1/nodes?resourceVersion=-1"), 400),
        ("a token that is none", get("/api/v1/nodes?continue=AAAA"), 400),
        ("no such method", request("BREW", POOLS, &[], b""), 405),
        ("TRACE", request("TRACE", POOLS, &[], b""), 405),
        ("OPTIONS", request("OPTIONS", "*", &[], b""), 404),
        ("no such form", request("GET", POOLS, &[("accept", "text/html")], b""), 406),
        ("a wrong token", request("GET", POOLS, &[("authorization", "Bearer x")], b""), 200),
    ]
}

#[test]
fn bad_requests_are_refused_with_a_status() {
    let mut hub = HubProcess::start().unwrap();
    let dialer = dialer(&hub);
    let mut wrong = Vec::new();
    for (name, bytes, code) in bad_requests() {
        let response = dialer.request(&bytes);
        hub.check_alive().unwrap();
        match response {
            Ok(response) if response.code < 400 && response.code == code => {}
            Ok(response) if is_status(&response, code) => {}
            Ok(response) => {
                let text =
                    String::from_utf8_lossy(&response.body).chars().take(200).collect::<String>();
                wrong.push(format!("{name}: {} instead of {code}: {text}", response.code));
            }
            Err(error) => wrong.push(format!("{name}: {error:#}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The bytes are not HTTP: the server responds with an HTTP error or closes the connection.
#[test]
fn non_http_bytes_close_only_their_connection() {
    let mut hub = HubProcess::start().unwrap();
    let dialer = dialer(&hub);
    let long = "x".repeat(200_000);
    let table: [(&str, Vec<u8>, &[u16]); 8] = [
        ("noise", vec![0x00, 0xff, 0x16, 0x03, 0x0d, 0x0a, 0x0d, 0x0a], &[400]),
        ("a long header", request("GET", POOLS, &[("x-long", &long)], b""), &[431]),
        ("a long query", request("GET", &format!("{POOLS}?a={long}"), &[], b""), &[414, 431]),
        ("a thousand headers", request("GET", POOLS, &[("x-many", "y"); 1000], b""), &[431]),
        ("a length that is none", request("GET", POOLS, &[("content-length", "-5")], b""), &[400]),
        (
            "two lengths",
            {
                let headers = [("content-length", "2"), ("content-length", "3")];
                request("POST", POOLS, &headers, b"{}")
            },
            &[400],
        ),
        (
            "bad chunks",
            {
                let headers = [JSON, ("transfer-encoding", "chunked")];
                request("POST", POOLS, &headers, b"zz\r\n{}\r\n0\r\n\r\n")
            },
            &[400],
        ),
        ("an old version", b"GET / HTTP/0.9\r\n\r\n".to_vec(), &[400, 505]),
    ];
    for (name, bytes, codes) in table {
        if let Ok(response) = dialer.request(&bytes) {
            assert!(codes.contains(&response.code), "{name}: {}", response.code);
        }
        hub.check_alive().unwrap();
    }
    // Not even TLS.
    let mut tcp = dialer.tcp().unwrap();
    tcp.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = tcp.read_to_end(&mut Vec::new());
    assert!(worst_latency(&dialer) < Duration::from_secs(2));
}

/// Slow clients of every kind at once. They hold their connections until the end.
struct SlowClients {
    _tcp: Vec<TcpStream>,
    _tls: Vec<TlsConnection>,
}

const SLOW_BODY_BYTES: usize = 100_000;
const SLOW_BODY_START: &str = "{\"kind\":";

/// The beginning of a request whose body does not follow.
fn slow_post() -> String {
    format!(
        "POST {POOLS} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: {SLOW_BODY_BYTES}\r\n\r\n{SLOW_BODY_START}"
    )
}

fn slow_clients(dialer: &RawTlsDialer) -> SlowClients {
    let mut tls = Vec::new();
    let mut start = |connection: TlsConnection, bytes: &[u8]| {
        let mut connection = connection;
        connection.write_all(bytes).unwrap();
        connection.flush().unwrap();
        tls.push(connection);
    };
    for _ in 0..200 {
        start(dialer.anonymous().unwrap(), b"GET /api/v1/nodes HTTP/1.1\r\nhost: h\r\nx-slow: ");
        start(dialer.admin().unwrap(), slow_post().as_bytes());
    }
    let watch = format!("GET {MAPS}?watch=true HTTP/1.1\r\nhost: h\r\n\r\n");
    for _ in 0..50 {
        start(dialer.admin().unwrap(), watch.as_bytes());
    }
    let list = format!("GET {MAPS} HTTP/1.1\r\nhost: h\r\n\r\n");
    for _ in 0..50 {
        start(dialer.admin().unwrap(), list.as_bytes());
    }
    for _ in 0..4 {
        let path = format!("{MAPS}?watch=1");
        start(dialer.admin_http2().unwrap(), &http2_without_window(&path, 200));
    }
    SlowClients { _tcp: (0..100).map(|_| dialer.tcp().unwrap()).collect(), _tls: tls }
}

/// Writes config maps of 100 KB repeatedly.
fn overwrite_config_maps(hub: &HubProcess, indices: std::ops::Range<usize>) {
    let client = hub.client().unwrap();
    let data = "y".repeat(100_000);
    block_on(async {
        for index in indices {
            let name = format!("m{}", index % 40);
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                "data": {"data": data, "index": index.to_string()},
            });
            let (method, path) = match index {
                0..40 => ("POST", MAPS.to_owned()),
                _ => ("PUT", format!("{MAPS}/{name}")),
            };
            let request = http::Request::builder().method(method).uri(path);
            let request = request.body(map.to_string().into_bytes()).unwrap();
            client.request::<Value>(request).await.unwrap();
        }
    });
}

#[test]
fn slow_clients_do_not_affect_others() {
    let mut hub = HubProcess::start().unwrap();
    let dialer = dialer(&hub);
    overwrite_config_maps(&hub, 0..40);
    let before = hub.memory();
    let slow = slow_clients(&dialer);
    // Every watcher has 40 MB to read: 32 GB over all streams, if the hub buffered it.
    let start = Instant::now();
    overwrite_config_maps(&hub, 40..440);
    let churned = start.elapsed();
    let worst = worst_latency(&dialer);
    let held = hub.memory().saturating_sub(before) >> 20;
    let summary = format!(
        "{held} MB for 504 slow connections; 400 writes in {churned:.1?}; worst answer {worst:.1?}"
    );
    eprintln!("{summary}");
    measurements::record("hub-slow-clients", &summary).unwrap();
    hub.check_alive().unwrap();
    drop(slow);
    assert!(held < 300, "{summary}");
    assert!(worst < Duration::from_secs(3), "{summary}");
    // A client that was slow and then sends the rest in time gets its response.
    let mut late = dialer.admin().unwrap();
    late.write_all(slow_post().as_bytes()).unwrap();
    late.flush().unwrap();
    late.write_all(&vec![b' '; SLOW_BODY_BYTES - SLOW_BODY_START.len()]).unwrap();
    let mut response = [0; 12];
    late.read_exact(&mut response).unwrap();
    assert_eq!(&response, b"HTTP/1.1 400");
}

#[test]
fn ten_thousand_idle_connections_do_not_block_clients() {
    let files = raise_file_limit();
    let count = env_number("MACHINIST_IDLE", 10_000).min(files.saturating_sub(500));
    let mut hub = HubProcess::start().unwrap();
    let dialer = dialer(&hub);
    let before = hub.memory();
    let start = Instant::now();
    let connect = |count: u64| {
        let request_bytes = b"GET /readyz HTTP/1.1\r\nhost: h\r\n\r\n";
        (0..count)
            .map(|_| {
                let mut connection = dialer.anonymous().unwrap();
                connection.write_all(request_bytes).unwrap();
                let mut code = [0; 12];
                connection.read_exact(&mut code).unwrap();
                assert_eq!(&code, b"HTTP/1.1 200");
                connection
            })
            .collect::<Vec<_>>()
    };
    let connections: Vec<TlsConnection> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| connect(count / 4))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let (made, worst) = (start.elapsed(), worst_latency(&dialer));
    let memory = hub.memory().saturating_sub(before);
    let each = memory / connections.len() as u64 / 1024;
    let summary = format!(
        "{} idle connections made in {made:.1?}: {} MB, {each} KB each; worst answer {worst:.1?}",
        connections.len(),
        memory >> 20
    );
    eprintln!("{summary}");
    measurements::record("hub-idle-connections", &summary).unwrap();
    assert!(each < 64, "{summary}");
    assert!(worst < Duration::from_secs(2), "{summary}");
    drop(connections);
    wait_with_timeout(Duration::from_secs(30), "the connections to be forgotten", || {
        hub.check_alive()?;
        let sockets = std::fs::read_dir(format!("/proc/{}/fd", hub.id()))?.count();
        Ok(sockets < 200)
    })
    .unwrap();
}
