//! Start, logs, metrics and stop of a server.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::server::fixture::{MASTER, ServerFixture, exchange};

#[test]
fn metrics() {
    let site = ServerFixture::new();
    let server = site.serve(&["--metrics-listen=127.0.0.1:0"]);
    let line = server.wait_for("socket=\"metrics-listen\"");
    let address: SocketAddr =
        line.split("address=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    server.get(MASTER, "*/*");
    server.get("/config/some-name-from-outside", "*/*");
    let request = |path| exchange(&mut TcpStream::connect(address).unwrap(), "GET", path, &[]);
    let text = String::from_utf8(request("/metrics").body).unwrap();
    let counted =
        r#"machinist_server_requests_total{pool="master",version="2.2.0",status="200"} 1"#;
    assert!(text.contains(counted), "{text}");
    let timed = r#"duration_seconds_count{pool="master",version="2.2.0",status="200"} 1"#;
    assert!(text.contains(timed), "{text}");
    for name in ["machinist_server_sent_bytes_total{", "machinist_server_changed_seconds"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(!text.contains("outside"), "{text}");
    assert_eq!(request("/readyz").status, 200);
}

#[test]
fn every_response_is_logged_without_its_contents() {
    let site = ServerFixture::new();
    let server = site.serve(&[]);
    server.request("GET", MASTER, &[("User-Agent", "Ignition/2.14.0")]);
    let line = server.wait_for("answered");
    for part in [
        "\"master\"",
        "peer=127.0.0.1:",
        "status=200",
        "rendered-master-1",
        "version=\"3.1.0\"",
        "token=\"\"",
        "size=",
        "Ignition/2.14.0",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains("data:"), "{line}");
    // Also for invalid requests. The query is not logged, because it may contain a token.
    server.request("DELETE", "/nothing?token=abcdef.secret", &[]);
    let line = server.wait_for("answered");
    assert!(line.contains("status=405") && line.contains("path=\"/nothing\""), "{line}");
    assert!(!line.contains("secret"), "{line}");
}

#[test]
fn a_failed_start_reports_the_reason() {
    let site = ServerFixture::new();
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
fn a_signal_stops_the_server() {
    let site = ServerFixture::new();
    let mut server = site.serve(&[]);
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let start = Instant::now();
    while server.child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(20), "the server does not stop");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn flags_of_mco_are_accepted() {
    let site = ServerFixture::new();
    let server = site.serve(&[
        "--payload-version=4.20.0",
        "--tls-min-version=VersionTLS13",
        "--tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_128_CBC_SHA",
        "--v=2",
        "--logtostderr",
    ]);
    assert_eq!(server.get(MASTER, "*/*").status, 200);
}

#[test]
fn a_stop_finishes_responses_in_progress() {
    use std::io::{Read as _, Write as _};
    let site = ServerFixture::new();
    let large = format!("data:,{}", "x".repeat(8 << 20));
    let file = serde_json::json!({"path": "/a", "contents": {"source": large}});
    let rest = serde_json::json!({"storage": {"files": [file]}});
    site.config_with("rendered-master-1", &rest);
    let mut server = site.serve(&[]);
    let length = server.request("HEAD", MASTER, &[]).header("content-length").to_owned();
    let mut slow = TcpStream::connect(server.plain).unwrap();
    slow.write_all(b"GET /config/master HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut bytes = vec![0; 1024];
    slow.read_exact(&mut bytes).unwrap();
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    // The rest of the response arrives before the server exits.
    slow.read_to_end(&mut bytes).unwrap();
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    assert_eq!((bytes.len() - head - 4).to_string(), length);
    assert!(server.child.wait().unwrap().success());
}
