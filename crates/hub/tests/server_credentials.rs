//! Credentials that expire or are revoked while a connection or a watch is open.
use crate::support;

use std::time::Duration;

use machinist_hub::auth::UserInfo;
use machinist_hub::auth::certificates::{
    CertificateAuthority, PemKeyPair, SigningRequest, generate_csr,
};
use machinist_hub::server::ConnectionLimits;
use serde_json::{Value, json};
use support::send;
use support::tls_hub::TlsHub;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A certificate of a machine that is valid for some seconds.
fn machine_certificate(server: &TlsHub, name: &str, seconds: i64) -> PemKeyPair {
    let ca = CertificateAuthority::from_pem(&server.ca).unwrap();
    let (key, request) = generate_csr(&format!("system:node:{name}"), "system:nodes").unwrap();
    let request = SigningRequest::parse(&request).unwrap();
    PemKeyPair { certificate: ca.sign_request(&request, seconds).unwrap(), key }
}

/// Sends a request on an open connection and returns the status code of the response.
async fn status_of(
    stream: &mut TlsStream<TcpStream>,
    method: &str,
    path: &str,
    header: &str,
) -> u16 {
    let text = format!("{method} {path} HTTP/1.1\r\nhost: h\r\n{header}content-length: 0\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut response = Vec::new();
    loop {
        let count = stream.read_buf(&mut response).await.unwrap();
        assert!(count > 0, "the server keeps the connection open");
        let text = String::from_utf8_lossy(&response);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if length.is_some_and(|length| length.parse() == Ok(body.len())) {
            return head.split(' ').nth(1).unwrap().parse().unwrap();
        }
    }
}

async fn as_admin(server: &TlsHub, method: &str, path: &str, body: Value) -> (u16, Value) {
    let router = server.hub.router_as(UserInfo::admin());
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (code, response) = send(router, method, path, &[], body).await;
    (code.as_u16(), response)
}

async fn create_node(server: &TlsHub, name: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    assert_eq!(as_admin(server, "POST", "/api/v1/nodes", node).await.0, 201);
}

#[tokio::test]
async fn an_expired_certificate_ends_on_an_open_connection() {
    let server = TlsHub::start(ConnectionLimits::default()).await;
    create_node(&server, "a").await;
    let certificate = machine_certificate(&server, "a", 3);
    let mut open = server.connect(Some(&certificate), b"http/1.1").await;
    assert_eq!(status_of(&mut open, "GET", "/api/v1/nodes/a", "").await, 200);
    tokio::time::sleep(Duration::from_millis(3500)).await;
    assert_eq!(status_of(&mut open, "GET", "/api/v1/nodes/a", "").await, 401);
}

#[tokio::test]
async fn a_revoked_certificate_ends_on_an_open_connection() {
    let server = TlsHub::start(ConnectionLimits::default()).await;
    create_node(&server, "a").await;
    create_node(&server, "b").await;
    let connect = async |name: &str| {
        let certificate = machine_certificate(&server, name, 3600);
        server.connect(Some(&certificate), b"http/1.1").await
    };
    let (mut open, mut other) = (connect("a").await, connect("b").await);
    assert_eq!(status_of(&mut open, "GET", "/api/v1/nodes/a", "").await, 200);
    assert_eq!(as_admin(&server, "DELETE", "/machinist/v1/machines/a", Value::Null).await.0, 200);
    assert_eq!(status_of(&mut open, "GET", "/api/v1/nodes/a", "").await, 401);
    assert_eq!(status_of(&mut other, "GET", "/api/v1/nodes/b", "").await, 200, "others stay");
    // Only administrators revoke.
    let path = "/machinist/v1/machines/a";
    assert_eq!(status_of(&mut other, "DELETE", path, "").await, 403);
}

/// A machine that deletes its Node leaves: it cannot come back with the same certificate and another role.
#[tokio::test]
async fn a_machine_that_left_has_no_certificate_any_more() {
    let server = TlsHub::start(ConnectionLimits::default()).await;
    create_node(&server, "a").await;
    let certificate = machine_certificate(&server, "a", 3600);
    // The certificate was issued in an earlier second than the one in which the machine leaves.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let mut open = server.connect(Some(&certificate), b"http/1.1").await;
    assert_eq!(status_of(&mut open, "DELETE", "/api/v1/nodes/a", "").await, 200);
    assert_eq!(status_of(&mut open, "GET", "/api/v1/nodes/a", "").await, 401);
}

/// Reads a watch until it ends.
async fn read_to_end(stream: &mut TlsStream<TcpStream>) -> String {
    let mut text = Vec::new();
    let read = async {
        while !text.ends_with(b"0\r\n\r\n") {
            if stream.read_buf(&mut text).await.unwrap_or(0) == 0 {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), read).await.expect("the watch ends");
    String::from_utf8(text).unwrap()
}

async fn start_watch(stream: &mut TlsStream<TcpStream>, path: &str, header: &str) {
    let text = format!("GET {path}watch=true HTTP/1.1\r\nhost: h\r\n{header}\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
}

#[tokio::test]
async fn watches_end_with_their_credential() {
    let server = TlsHub::start(ConnectionLimits::default()).await;
    create_node(&server, "a").await;
    let own = "/api/v1/nodes?fieldSelector=metadata.name%3Da&";
    let certificate = machine_certificate(&server, "a", 3600);
    let mut revoked = server.connect(Some(&certificate), b"http/1.1").await;
    start_watch(&mut revoked, own, "").await;
    let short = machine_certificate(&server, "a", 3);
    let mut expiring = server.connect(Some(&short), b"http/1.1").await;
    start_watch(&mut expiring, own, "").await;
    let text = read_to_end(&mut expiring).await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    as_admin(&server, "DELETE", "/machinist/v1/machines/a", Value::Null).await;
    let text = read_to_end(&mut revoked).await;
    assert!(text.contains(r#""reason":"Unauthorized""#), "{text}");
    let (_, made) =
        as_admin(&server, "POST", "/machinist/v1/tokens", json!({"role": "viewer"})).await;
    let bearer = format!("authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    let mut viewer = server.connect_anonymous().await;
    start_watch(&mut viewer, "/api/v1/nodes?", &bearer).await;
    let path = format!("/machinist/v1/tokens/{}", made["id"].as_str().unwrap());
    assert_eq!(as_admin(&server, "DELETE", &path, Value::Null).await.0, 200);
    let text = read_to_end(&mut viewer).await;
    assert!(text.contains(r#""reason":"Unauthorized""#), "{text}");
}

#[tokio::test]
async fn tokens_are_listed_and_revoked() {
    let server = TlsHub::start(ConnectionLimits::default()).await;
    let options = json!({"role": "viewer", "name": "dashboard"});
    let (_, made) = as_admin(&server, "POST", "/machinist/v1/tokens", options).await;
    let (id, text) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let header = format!("authorization: Bearer {text}\r\n");
    let mut open = server.connect_anonymous().await;
    for _ in 0..20 {
        assert_eq!(status_of(&mut open, "GET", "/api/v1/nodes", &header).await, 200);
    }
    let list = async || as_admin(&server, "GET", "/machinist/v1/tokens", Value::Null).await.1;
    support::wait_until("the last use is written", async || {
        list().await["items"][0]["lastUsed"].is_i64()
    })
    .await;
    let found = list().await;
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    assert_eq!(found["items"][0]["name"], "dashboard");
    let entry = server.hub.store().get(&format!("/machinist/tokens/-/{id}")).unwrap();
    let record: Value = serde_json::from_slice(&entry.value).unwrap();
    let shown = found.to_string();
    assert!(!shown.contains(record["hash"].as_str().unwrap()), "{shown}");
    assert!(!shown.contains(text.split('.').nth(1).unwrap()), "{shown}");
    // One write for twenty requests: the creation and the first use.
    let before = server.hub.store().revision();
    assert_eq!(status_of(&mut open, "GET", "/api/v1/nodes", &header).await, 200);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.hub.store().revision(), before);
    // Nobody but an administrator sees or revokes tokens.
    let path = format!("/machinist/v1/tokens/{id}");
    assert_eq!(status_of(&mut open, "GET", "/machinist/v1/tokens", &header).await, 403);
    assert_eq!(status_of(&mut open, "DELETE", &path, &header).await, 403);
    assert_eq!(as_admin(&server, "DELETE", &path, Value::Null).await.0, 200);
    assert_eq!(status_of(&mut open, "GET", "/api/v1/nodes", &header).await, 401);
    let (code, response) = as_admin(&server, "DELETE", &path, Value::Null).await;
    assert_eq!(code, 404, "{response}");
    for odd in ["a.b", "..%2Fmachines%2Fa", "%00", "a/b"] {
        let path = format!("/machinist/v1/tokens/{odd}");
        assert_eq!(as_admin(&server, "DELETE", &path, Value::Null).await.0, 404, "{odd}");
    }
}

/// The record of a token that an earlier version wrote: it has no end, no name and no pools.
#[tokio::test]
async fn a_token_of_an_earlier_version_works_and_can_be_revoked() {
    let server = TlsHub::start(ConnectionLimits::default()).await;
    let (_, made) =
        as_admin(&server, "POST", "/machinist/v1/tokens", json!({"role": "viewer"})).await;
    let (id, text) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let key = format!("/machinist/tokens/-/{id}");
    let record: Value =
        serde_json::from_slice(&server.hub.store().get(&key).unwrap().value).unwrap();
    let old = json!({"role": "viewer", "hash": record["hash"]}).to_string();
    let op = machinist_hub::store::StoreOp::Put {
        key,
        value: old.into(),
        expect: machinist_hub::store::Precondition::Any,
    };
    server.hub.store().commit(vec![op]).await.unwrap();
    let header = format!("authorization: Bearer {text}\r\n");
    let mut open = server.connect_anonymous().await;
    assert_eq!(status_of(&mut open, "GET", "/api/v1/nodes", &header).await, 200);
    let path = format!("/machinist/v1/tokens/{id}");
    assert_eq!(as_admin(&server, "DELETE", &path, Value::Null).await.0, 200);
    assert_eq!(status_of(&mut open, "GET", "/api/v1/nodes", &header).await, 401);
}
