//! `machinist server bootstrap` from the outside: every status, header and file of the contract, over real connections.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use machinist_hub::auth::certificates::Ca;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

const MASTER: &str = "/config/master";
const IGNITION: &str = "application/vnd.coreos.ignition+json";

/// A folder to serve from, with a certificate.
struct Site {
    folder: tempfile::TempDir,
    ca: Ca,
}

impl Site {
    fn new() -> Self {
        let ca = Ca::load(&Ca::make("test").unwrap()).unwrap();
        let site = Self { folder: tempfile::tempdir().unwrap(), ca };
        site.issue("one");
        site.write("kubeconfig", "clusters:\n- name: a\n  cluster: {server: 'https://api:6443'}\n");
        site.object(
            "controller-config/machine-config-controller",
            "ControllerConfig",
            &json!({
                "spec": {"kubeAPIServerServingCAData": "Y2E="},
            }),
        );
        site.config("rendered-master-1", "/etc/one");
        site.pool("master", "rendered-master-1");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // As whoever is careful replaces a file.
        let part = path.with_extension("part");
        fs::write(&part, text).unwrap();
        fs::rename(part, path).unwrap();
    }

    fn object(&self, name: &str, kind: &str, rest: &Value) {
        let mut object = rest.clone();
        object["apiVersion"] = "machineconfiguration.openshift.io/v1".into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = Path::new(name).file_name().unwrap().to_str().into();
        self.write(&format!("base/{name}.yaml"), &object.to_string());
    }

    fn config(&self, name: &str, file: &str) {
        let files = json!([{"path": file, "contents": {"source": "data:,x"}}]);
        let config = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}});
        let name = format!("machine-configs/{name}");
        self.object(&name, "MachineConfig", &json!({"spec": {"config": config}}));
    }

    fn pool(&self, name: &str, config: &str) {
        let status = json!({"configuration": {"name": config}});
        self.object(
            &format!("machine-pools/{name}"),
            "MachineConfigPool",
            &json!({"spec": {}, "status": status}),
        );
    }

    /// A new certificate; its name is in it.
    fn issue(&self, name: &str) {
        let names = ["127.0.0.1".to_owned(), format!("{name}.test")];
        let pair = self.ca.server(name, &names).unwrap();
        self.write("tls.key", &pair.key);
        self.write("tls.crt", &pair.certificate);
    }

    fn serve(&self, more: &[&str]) -> Server {
        Server::start(self, more)
    }
}

/// What a server says; several threads may look.
type Log = Mutex<mpsc::Receiver<String>>;

/// A running server; killed when it is dropped.
struct Server {
    child: Child,
    secure: SocketAddr,
    plain: SocketAddr,
    log: Log,
}

impl Server {
    fn start(site: &Site, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_machinist"))
            .args(["server", "bootstrap", "--secure-port=0", "--insecure-port=0"])
            .args(["--listen-address=127.0.0.1", "--server-basedir"])
            .arg(site.path("base"))
            .arg("--bootstrap-kubeconfig")
            .arg(site.path("kubeconfig"))
            .arg("--cert")
            .arg(site.path("tls.crt"))
            .arg("--key")
            .arg(site.path("tls.key"))
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, log) = mpsc::channel();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let address = |port: &str| loop {
            let line = log.recv_timeout(Duration::from_secs(20)).expect("it listens");
            if line.contains(port) {
                break line.rsplit("address=").next().unwrap().parse().unwrap();
            }
        };
        let (secure, plain) = (address("(secure-port)"), address("(insecure-port)"));
        Self { child, secure, plain, log: Mutex::new(log) }
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        exchange(&mut TcpStream::connect(self.plain).unwrap(), method, path, headers)
    }

    fn get(&self, path: &str, accept: &str) -> Answer {
        self.ask("GET", path, &[("Accept", accept)])
    }

    fn wait_for(&self, part: &str) -> String {
        wait_for(&self.log, part)
    }
}

/// Waits for a line of a log.
fn wait_for(log: &Log, part: &str) -> String {
    let log = log.lock().unwrap();
    loop {
        let line = log.recv_timeout(Duration::from_secs(20)).expect(part);
        if line.contains(part) {
            return line;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Sends a request and reads until the other side closes.
fn exchange(
    stream: &mut (impl Read + Write),
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let text = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = text.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Answer { status, headers, body: bytes[end + 4..].to_vec() }
}

fn paths(answer: &Value) -> Vec<&str> {
    let files = answer["storage"]["files"].as_array().unwrap();
    files.iter().map(|file| file["path"].as_str().unwrap()).collect()
}

#[test]
fn pages_and_methods() {
    let site = Site::new();
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
    ] {
        let answer = server.ask(method, path, &[]);
        assert_eq!(answer.status, status, "{method} {path}");
        if status >= 400 || path == "/healthz" {
            assert_eq!(answer.header("content-length"), "0", "{method} {path}");
            assert_eq!(answer.header("content-type"), "", "{method} {path}");
            assert_eq!(answer.header("allow"), "", "{method} {path}");
            assert!(answer.body.is_empty());
        }
    }
    assert_eq!(server.ask("GET", "/config", &[]).header("location"), "/config/");
}

#[test]
fn head_is_get_without_the_body() {
    let site = Site::new();
    let server = site.serve(&[]);
    let (get, head) = (server.ask("GET", MASTER, &[]), server.ask("HEAD", MASTER, &[]));
    assert_eq!(get.header("content-type"), "application/json");
    assert_eq!(get.header("content-length"), get.body.len().to_string());
    assert!(head.body.is_empty());
    for name in ["content-type", "content-length", "etag", "vary"] {
        assert_eq!(get.header(name), head.header(name), "{name}");
    }
}

#[test]
fn versions() {
    let site = Site::new();
    let server = site.serve(&[]);
    for (accept, status, version) in [
        ("*/*".to_owned(), 200, "2.2.0"),
        (
            format!("{IGNITION}; version=2.4.0, {IGNITION}; version=1; q=0.5, */*; q=0.1"),
            200,
            "2.2.0",
        ),
        (format!("{IGNITION};version=3.1.0, */*;q=0.1"), 200, "3.1.0"),
        (format!("{IGNITION};version=3.5.0"), 200, "3.5.0"),
        (format!("{IGNITION};version=3.9.0"), 200, "3.5.0"),
        (format!("{IGNITION};version=3.0.0"), 500, ""),
        (format!("{IGNITION};version=2.1.0"), 400, ""),
        (format!("{IGNITION};version=4.0.0, {IGNITION};version=3.3.0;q=0.5"), 400, ""),
    ] {
        let answer = server.get(MASTER, &accept);
        assert_eq!(answer.status, status, "{accept}");
        if status == 200 {
            assert_eq!(answer.json()["ignition"]["version"], version, "{accept}");
        }
    }
    // The version is looked at before the pool.
    assert_eq!(server.get("/config/arbiter", &format!("{IGNITION};version=1.0.0")).status, 400);
}

#[test]
fn the_same_question_has_the_same_answer() {
    let site = Site::new();
    let server = site.serve(&[]);
    let first = server.get(MASTER, "*/*");
    for _ in 0..10 {
        assert!(server.get(MASTER, "*/*").body == first.body);
    }
    let known = server.ask("GET", MASTER, &[("If-None-Match", first.header("etag"))]);
    assert_eq!((known.status, known.body.len()), (304, 0));
    let packed = server.ask("GET", MASTER, &[("Accept-Encoding", "gzip")]);
    assert_eq!(packed.header("content-encoding"), "gzip");
    let mut body = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut body).unwrap();
    assert!(body == first.body);
    assert_ne!(packed.header("etag"), first.header("etag"));
}

#[test]
fn files_are_served_as_they_are_now() {
    let site = Site::new();
    site.write("base/extra/ca.crt", "PEM");
    let server = site.serve(&["--bootstrap-certs", "registry:5000=extra/ca.crt"]);
    let accept = format!("{IGNITION};version=3.5.0");
    let answer = server.get(MASTER, &accept).json();
    assert_eq!(
        paths(&answer),
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
    // A config that is not there, a pool without one, one without clusters, no pool.
    site.pool("master", "rendered-master-3");
    assert_eq!(server.get(MASTER, &accept).status, 404);
    site.pool("master", "");
    let answer = server.get(MASTER, &accept);
    assert_eq!((answer.status, answer.header("retry-after")), (503, "5"));
    site.pool("master", "rendered-master-1");
    site.write("kubeconfig", "clusters: []\n");
    assert_eq!(server.get(MASTER, &accept).status, 500);
    fs::remove_file(site.path("base/machine-pools/master.yaml")).unwrap();
    assert_eq!(server.get(MASTER, &accept).status, 404);
}

#[test]
fn all_pools_when_told() {
    let site = Site::new();
    site.pool("worker", "rendered-master-1");
    let server = site.serve(&["--all-pools", "--unknown-pool=503"]);
    assert_eq!(server.get("/config/worker", "*/*").status, 200);
    assert_eq!(server.get("/config/..", "*/*").status, 307); // a path, not a pool
    assert_eq!(server.get("/config/%2e%2e", "*/*").status, 503);
}

/// The certificate that the server shows, and what it answers.
fn ask_tls(
    site: &Site,
    server: &Server,
    alpn: &[&[u8]],
    old: bool,
) -> std::io::Result<(Vec<u8>, u16)> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(site.ca.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = if old { &[&rustls::version::TLS12][..] } else { rustls::DEFAULT_VERSIONS };
    let builder =
        ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection =
        ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, TcpStream::connect(server.secure)?);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    let shown = stream.conn.peer_certificates().unwrap()[0].to_vec();
    let answer = exchange(&mut stream, "GET", MASTER, &[]);
    Ok((shown, answer.status))
}

#[test]
fn tls_and_a_new_certificate_without_a_restart() {
    let site = Site::new();
    let server = site.serve(&[]);
    let (first, status) = ask_tls(&site, &server, &[], false).unwrap();
    assert_eq!(status, 200);
    assert_eq!(ask_tls(&site, &server, &[b"h2", b"http/1.1"], true).unwrap().1, 200);
    assert!(ask_tls(&site, &server, &[b"h2"], false).is_err());
    // Nobody who asks meanwhile notices.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(ask_tls(&site, &server, &[], false).unwrap().1, 200);
                }
            });
        }
        site.issue("two");
        wait_for(&server.log, "serving certificate replaced");
        done.store(true, Ordering::Relaxed);
    });
    let (second, status) = ask_tls(&site, &server, &[], false).unwrap();
    assert_eq!(status, 200);
    assert_ne!(first, second);
    // One that cannot be used leaves the last one in place.
    site.write("tls.crt", "junk");
    server.wait_for("cannot use the new certificate");
    assert_eq!(ask_tls(&site, &server, &[], false).unwrap(), (second, 200));
}

#[test]
fn what_is_not_http_does_no_harm() {
    let site = Site::new();
    let server = site.serve(&[]);
    let huge = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(1 << 20));
    for bytes in
        [&b"\x16\x03\x01\x00\xff\x00\x00"[..], b"\0\0\0\0\r\n\r\n", b"GET", huge.as_bytes()]
    {
        for address in [server.plain, server.secure] {
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
    assert_eq!(server.get(MASTER, "*/*").status, 200);
}

#[test]
fn slow_clients_cost_little() {
    let site = Site::new();
    let server = site.serve(&[]);
    let slow: Vec<TcpStream> = (0..400)
        .map(|number| {
            let address = if number % 2 == 0 { server.plain } else { server.secure };
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = stream.write_all(b"GET /config/master HTTP/1.1\r\nX: ");
            stream
        })
        .collect();
    assert_eq!(server.get(MASTER, "*/*").status, 200);
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let memory: u64 = memory.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(memory < 60_000, "{memory} kB for {} connections", slow.len());
}

#[test]
fn networks_and_limits() {
    let site = Site::new();
    let server = site.serve(&["--deny-from=127.0.0.0/8"]);
    assert_eq!(server.get(MASTER, "*/*").status, 403);
    assert_eq!(server.get("/healthz", "*/*").status, 200);
    let server = site.serve(&["--allow-from=127.0.0.1", "--rate-limit=3"]);
    let answers: Vec<u16> = (0..4).map(|_| server.get(MASTER, "*/*").status).collect();
    assert_eq!(answers, [200, 200, 200, 503]);
    assert_eq!(server.get(MASTER, "*/*").header("retry-after"), "5");
}

#[test]
fn figures() {
    let site = Site::new();
    let server = site.serve(&["--metrics-listen-address=127.0.0.1:0"]);
    let line = server.wait_for("(metrics-listen-address)");
    let address: SocketAddr = line.rsplit("address=").next().unwrap().parse().unwrap();
    server.get(MASTER, "*/*");
    server.get("/config/some-name-from-outside", "*/*");
    let ask = |path| exchange(&mut TcpStream::connect(address).unwrap(), "GET", path, &[]);
    let text = String::from_utf8(ask("/metrics").body).unwrap();
    let counted =
        r#"machinist_server_requests_total{pool="master",version="2.2.0",status="200"} 1"#;
    assert!(text.contains(counted), "{text}");
    assert!(!text.contains("outside"), "{text}");
    assert_eq!(ask("/readyz").status, 200);
}

#[test]
fn every_answer_has_a_line_in_the_log_without_what_is_in_it() {
    let site = Site::new();
    let server = site.serve(&[]);
    server.ask("GET", MASTER, &[("User-Agent", "Ignition/2.14.0")]);
    let line = server.wait_for("answered");
    for part in ["\"master\"", "127.0.0.1", "status=200", "rendered-master-1", "Ignition/2.14.0"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn a_server_that_cannot_begin_says_why() {
    let site = Site::new();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
        let output = command.arg("server").args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let missing = run(&["bootstrap", "--bootstrap-kubeconfig", "/nowhere"]);
    assert!(missing.contains("kubeconfig not found at location: /nowhere"), "{missing}");
    let kubeconfig = site.path("kubeconfig");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let bad =
        run(&["bootstrap", "--bootstrap-kubeconfig", kubeconfig, "--cert", "/no", "--key", "/no"]);
    assert!(bad.contains("failed to load serving cert: cannot read /no"), "{bad}");
    assert!(run(&["start"]).contains("--apiserver-url cannot be empty"));
}

#[test]
fn it_stops_when_told() {
    let site = Site::new();
    let mut server = site.serve(&[]);
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let start = Instant::now();
    while server.child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not stop");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(server.child.wait().unwrap().success());
}
