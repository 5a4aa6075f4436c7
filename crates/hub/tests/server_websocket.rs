//! Watches over WebSocket: the handshake, the frames, and what hostile clients can do.
use crate::support;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use machinist_hub::auth::UserInfo;
use machinist_hub::auth::certificates::PemKeyPair;
use machinist_hub::server::ConnectionLimits;
use serde_json::{Value, json};
use support::tls_hub::TlsHub;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const HANDSHAKE: &str = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\norigin: https://h\r\n";

/// A client of the test, with the head of its response.
struct WebSocket {
    stream: TlsStream<TcpStream>,
    head: String,
}

impl WebSocket {
    async fn open(server: &TlsHub, identity: Option<&PemKeyPair>, path: &str, head: &str) -> Self {
        let mut stream = server.connect(identity, b"http/1.1").await;
        let request = format!("GET {path} HTTP/1.1\r\nhost: h\r\n{head}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        Self { stream, head: String::from_utf8(head).unwrap().to_ascii_lowercase() }
    }

    fn code(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    async fn send(&mut self, frame: &[u8]) {
        self.stream.write_all(frame).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The opcode and payload of the next frame.
    async fn frame(&mut self) -> (u8, Vec<u8>) {
        self.next_frame().await.unwrap()
    }

    async fn next_frame(&mut self) -> std::io::Result<(u8, Vec<u8>)> {
        let opcode = self.stream.read_u8().await? & 0x0f;
        let length = match self.stream.read_u8().await? {
            126 => usize::from(self.stream.read_u16().await?),
            127 => usize::try_from(self.stream.read_u64().await?).unwrap(),
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await?;
        Ok((opcode, payload))
    }

    async fn event(&mut self) -> Value {
        let (opcode, payload) = self.frame().await;
        assert_eq!(opcode, 1, "a text frame");
        serde_json::from_slice(&payload).unwrap()
    }

    /// Waits until the server closes the connection.
    async fn wait_for_end(&mut self) {
        let mut rest = [0; 4096];
        while self.stream.read(&mut rest).await.unwrap_or(0) > 0 {}
    }
}

async fn as_admin(server: &TlsHub, method: &str, path: &str, body: Value) -> Value {
    let router = server.hub.router_as(UserInfo::admin());
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let json = [("content-type", "application/json")];
    let (code, response) = support::send(router, method, path, &json, body).await;
    assert!(code.is_success(), "{method} {path}: {response}");
    response
}

async fn create_map(server: &TlsHub, name: &str, data: &str) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": data},
    });
    as_admin(server, "POST", MAPS, map).await;
}

#[tokio::test]
async fn each_event_is_a_frame() {
    let server = TlsHub::start(ConnectionLimits::default()).await;
    create_map(&server, "before", "line\nbreak").await;
    create_map(&server, "large", &"x".repeat(70_000)).await;
    let path = format!("{MAPS}?watch=true");
    let head = format!("{HANDSHAKE}sec-websocket-protocol: base64.binary.k8s.io\r\n");
    let mut client = WebSocket::open(&server, Some(&server.admin), &path, &head).await;
    assert_eq!(client.code(), 101, "{}", client.head);
    assert!(client.head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"));
    assert!(client.head.contains("sec-websocket-protocol: base64.binary.k8s.io\r\n"));
    for name in ["before", "large"] {
        let event = client.event().await;
        assert_eq!(
            (&event["type"], &event["object"]["metadata"]["name"]),
            (&json!("ADDED"), &json!(name))
        );
    }
    client.send(b"\x89\x82\0\0\0\0hi").await;
    assert_eq!(client.frame().await, (10, b"hi".to_vec()));
    as_admin(&server, "DELETE", &format!("{MAPS}/before"), Value::Null).await;
    assert_eq!(client.event().await["type"], "DELETED");
    client.send(b"\x88\x80\0\0\0\0").await;
    assert_eq!(client.frame().await, (8, b"\x03\xe8".to_vec()));
    client.wait_for_end().await;
}

#[tokio::test]
async fn a_watch_ends_with_a_close_frame() {
    let server = TlsHub::start(ConnectionLimits::default()).await;
    let path = format!("{MAPS}?watch=true&timeoutSeconds=1");
    let mut client = WebSocket::open(&server, Some(&server.admin), &path, HANDSHAKE).await;
    assert_eq!(client.frame().await, (8, b"\x03\xe8".to_vec()));
    client.wait_for_end().await;
    // An expired revision is an event, as in every watch.
    let path = format!("{MAPS}?watch=true&resourceVersion=999999");
    let refused = WebSocket::open(&server, Some(&server.admin), &path, HANDSHAKE).await;
    assert_eq!(refused.code(), 504);
}

#[tokio::test]
async fn refused_upgrades_are_answered_at_once() {
    let server = TlsHub::start(ConnectionLimits::default()).await;
    let watch = format!("{MAPS}?watch=true");
    let machine = server.machine("a");
    let admin = Some(&server.admin);
    let without = |header: &str| {
        HANDSHAKE
            .split_inclusive("\r\n")
            .filter(|line| !line.starts_with(header))
            .collect::<String>()
    };
    let two = format!("{HANDSHAKE}sec-websocket-protocol: a, b\r\n");
    let old = HANDSHAKE.replace("version: 13", "version: 8");
    for (identity, path, head, expected) in [
        (None, &watch, HANDSHAKE, 401),
        (Some(&machine), &watch, HANDSHAKE, 403),
        (admin, &watch, &*without("origin"), 403),
        (admin, &watch, &*without("sec-websocket-key"), 400),
        (admin, &watch, &*without("sec-websocket-version"), 400),
        (admin, &watch, &*old, 400),
        (admin, &watch, &*two, 400),
        // Not an upgrade: the usual responses.
        (admin, &watch, &*without("connection"), 200),
        (admin, &MAPS.to_owned(), HANDSHAKE, 200),
        (admin, &"/api/v1/namespaces/default/pods/a/exec".to_owned(), HANDSHAKE, 404),
    ] {
        let client = WebSocket::open(&server, identity, path, head).await;
        assert_eq!(client.code(), expected, "{path} {head}: {}", client.head);
        let is_json = client.head.contains("content-type: application/json\r\n");
        assert!(is_json, "a Status: {}", client.head);
    }
}

#[tokio::test]
async fn a_token_can_be_a_subprotocol_until_it_is_revoked() {
    let server = TlsHub::start(ConnectionLimits::default()).await;
    let made = as_admin(&server, "POST", "/machinist/v1/tokens", json!({"role": "viewer"})).await;
    let token = URL_SAFE_NO_PAD.encode(made["token"].as_str().unwrap());
    let head = format!(
        "{HANDSHAKE}sec-websocket-protocol: base64url.bearer.authorization.k8s.io.{token}, v1\r\n"
    );
    let path = format!("{MAPS}?watch=true");
    let mut client = WebSocket::open(&server, None, &path, &head).await;
    assert_eq!(client.code(), 101, "{}", client.head);
    assert!(client.head.contains("sec-websocket-protocol: v1\r\n"), "without the token");
    let id = made["id"].as_str().unwrap();
    as_admin(&server, "DELETE", &format!("/machinist/v1/tokens/{id}"), Value::Null).await;
    let event = client.event().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(401)));
    assert_eq!(client.frame().await.0, 8);
    let refused = WebSocket::open(&server, None, &path, &head).await;
    assert_eq!(refused.code(), 401);
}

#[tokio::test]
async fn hostile_frames_end_the_connection() {
    let server = TlsHub::start(ConnectionLimits::default()).await;
    let path = format!("{MAPS}?watch=true");
    for (name, frames, code) in [
        (
            "a frame of 2^63 bytes",
            b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0".to_vec(),
            1009,
        ),
        ("a flood of pings", b"\x89\x80\0\0\0\0".repeat(5000), 1008),
        ("a flood of data", [&b"\x82\x84\0\0\0\0"[..], b"data"].concat().repeat(500), 1008),
        ("no mask", b"\x89\x00".to_vec(), 1002),
    ] {
        let mut client = WebSocket::open(&server, Some(&server.admin), &path, HANDSHAKE).await;
        // The server may close before everything is sent.
        let _ = client.stream.write_all(&frames).await;
        let _ = client.stream.flush().await;
        let closed = loop {
            match client.next_frame().await {
                Ok((10, _)) => {}
                closed => break closed,
            }
        };
        let expected: u16 = code;
        match closed {
            Ok(closed) => assert_eq!(closed, (8, expected.to_be_bytes().to_vec()), "{name}"),
            // What the server did not read of a flood resets the connection, and may overtake the frame.
            Err(error) => assert!(name.contains("flood"), "{name}: {error}"),
        }
        client.wait_for_end().await;
    }
}

/// An upgraded connection counts among those of its identity, and its watch among the watches.
#[tokio::test]
async fn open_websockets_are_limited_for_each_identity() {
    let limits = ConnectionLimits { max_machine_connections: 2, ..ConnectionLimits::default() };
    let server = TlsHub::start(limits).await;
    let machine = server.machine("a");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
    as_admin(&server, "POST", "/api/v1/nodes", node).await;
    let path = "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Da";
    let mut open = Vec::new();
    for _ in 0..3 {
        let client = WebSocket::open(&server, Some(&machine), path, HANDSHAKE).await;
        assert_eq!(client.code(), 101, "{}", client.head);
        open.push(client);
    }
    open[0].wait_for_end().await;
    for client in &mut open[1..] {
        assert_eq!(client.event().await["type"], "ADDED");
        client.send(b"\x89\x80\0\0\0\0").await;
        assert_eq!(client.frame().await, (10, Vec::new()), "the others stay");
    }
    let has_watches = |count: u8| {
        let mut text = String::new();
        server.hub.metrics().encode(&mut text);
        text.contains(&format!("machinist_hub_watches {count}\n"))
    };
    support::wait_until("the evicted watch is closed", async || has_watches(2)).await;
    drop(open);
    support::wait_until("all watches are closed", async || has_watches(0)).await;
}
