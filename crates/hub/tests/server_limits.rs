//! The TLS server with short limits: slow, silent and surplus anonymous clients are disconnected;
//! authenticated ones stay.
use crate::support;

use std::time::Duration;

use machinist_hub::server::ConnectionLimits;
use support::tls_hub::TlsHub;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

const SHORT_TIMEOUT: Duration = Duration::from_millis(300);
/// Long enough that nothing times out in tests of other limits.
const NO_TIMEOUT: Duration = Duration::from_secs(600);
const READYZ_REQUEST: &[u8] = b"GET /readyz HTTP/1.1\r\nhost: h\r\n\r\n";

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        handshake_timeout: NO_TIMEOUT,
        first_request_timeout: NO_TIMEOUT,
        header_read_timeout: NO_TIMEOUT,
        ..ConnectionLimits::default()
    }
}

/// Reads until the server closes the connection.
async fn wait_for_close<S: tokio::io::AsyncRead + Unpin>(stream: &mut S) {
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    let _ = ended.expect("the server closes the connection"); // closed or reset
}

/// Sends a request and reads the response.
async fn gets_response(stream: &mut TlsStream<TcpStream>, request: &[u8]) -> bool {
    let sent = stream.write_all(request).await.is_ok() && stream.flush().await.is_ok();
    let mut response = Vec::new();
    while sent && !is_complete(&response) {
        match stream.read_buf(&mut response).await {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
    }
    sent
}

fn is_complete(response: &[u8]) -> bool {
    let text = String::from_utf8_lossy(response);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.is_some_and(|length| length.parse() == Ok(body.len()))
}

#[tokio::test]
async fn an_unfinished_handshake_is_closed() {
    let server =
        TlsHub::start(ConnectionLimits { handshake_timeout: SHORT_TIMEOUT, ..limits() }).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    wait_for_close(&mut silent).await;
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let server =
        TlsHub::start(ConnectionLimits { first_request_timeout: SHORT_TIMEOUT, ..limits() }).await;
    let mut active = server.connect_anonymous().await;
    assert!(gets_response(&mut active, READYZ_REQUEST).await);
    for protocol in [b"http/1.1".as_slice(), b"h2"] {
        wait_for_close(&mut server.connect(None, protocol).await).await;
        wait_for_close(&mut server.connect(Some(&server.admin), protocol).await).await;
    }
    assert!(
        gets_response(&mut active, READYZ_REQUEST).await,
        "a connection with a request stays open"
    );
}

#[tokio::test]
async fn an_unfinished_header_is_closed() {
    let server =
        TlsHub::start(ConnectionLimits { header_read_timeout: SHORT_TIMEOUT, ..limits() }).await;
    let mut slow = server.connect_admin().await;
    slow.write_all(b"GET /readyz HTTP/1.1\r\nx-slow: ").await.unwrap();
    wait_for_close(&mut slow).await;
}

#[tokio::test]
async fn the_oldest_anonymous_connection_is_evicted() {
    let server = TlsHub::start(ConnectionLimits {
        max_anonymous_connections: 3,
        max_connections: 6,
        ..limits()
    })
    .await;
    let mut admin = server.connect_admin().await;
    let mut guests = Vec::new();
    for _ in 0..5 {
        let mut guest = server.connect_anonymous().await;
        assert!(gets_response(&mut guest, READYZ_REQUEST).await);
        guests.push(guest);
    }
    for guest in &mut guests[..2] {
        wait_for_close(guest).await;
    }
    for guest in &mut guests[2..] {
        assert!(gets_response(guest, READYZ_REQUEST).await);
    }
    assert!(gets_response(&mut admin, READYZ_REQUEST).await);
    // All slots are taken: a new connection evicts an anonymous one.
    let mut known = Vec::new();
    for _ in 0..4 {
        let mut one = server.connect_admin().await;
        assert!(gets_response(&mut one, READYZ_REQUEST).await);
        known.push(one);
    }
    for one in known.iter_mut().chain([&mut admin]) {
        assert!(gets_response(one, READYZ_REQUEST).await);
    }
}

#[tokio::test]
async fn one_machine_evicts_only_its_own_connections() {
    let server = TlsHub::start(ConnectionLimits { max_machine_connections: 3, ..limits() }).await;
    let (flooding, honest) = (server.machine("a"), server.machine("b"));
    let mut other = server.connect(Some(&honest), b"http/1.1").await;
    assert!(gets_response(&mut other, READYZ_REQUEST).await);
    let mut own = Vec::new();
    for _ in 0..5 {
        let mut one = server.connect(Some(&flooding), b"http/1.1").await;
        assert!(gets_response(&mut one, READYZ_REQUEST).await);
        own.push(one);
    }
    for one in &mut own[..2] {
        wait_for_close(one).await;
    }
    for one in own[2..].iter_mut().chain([&mut other]) {
        assert!(gets_response(one, READYZ_REQUEST).await);
    }
}

#[tokio::test]
async fn a_token_authenticates_a_connection() {
    let server = TlsHub::start(ConnectionLimits { max_anonymous_connections: 1, ..limits() }).await;
    let router = server.hub.router_as(machinist_hub::auth::UserInfo::admin());
    let body = r#"{"role": "viewer"}"#.to_owned();
    let json = [("content-type", "application/json")];
    let (_, made) = support::send(router, "POST", "/machinist/v1/tokens", &json, body).await;
    let token = made["token"].as_str().unwrap();
    let ask = format!("GET /version HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {token}\r\n\r\n");
    let mut known = server.connect_anonymous().await;
    assert!(gets_response(&mut known, ask.as_bytes()).await);
    let mut liar = server.connect_anonymous().await;
    let wrong = ask.replace(token, "abcdef.0123456789abcdef");
    assert!(gets_response(&mut liar, wrong.as_bytes()).await);
    let mut guest = server.connect_anonymous().await;
    assert!(gets_response(&mut guest, READYZ_REQUEST).await);
    wait_for_close(&mut liar).await;
    assert!(gets_response(&mut known, ask.as_bytes()).await);
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected() {
    let server =
        TlsHub::start(ConnectionLimits { write_stall_timeout: Duration::from_secs(1), ..limits() })
            .await;
    let mut deaf = server.connect_admin().await;
    // The OpenAPI document is large; enough requests for it fill every buffer in between.
    let ask = b"GET /openapi/v2 HTTP/1.1\r\nhost: h\r\n\r\n".repeat(400);
    deaf.write_all(&ask).await.unwrap();
    deaf.flush().await.unwrap();
    // The client does not read, so it notices only when it writes again.
    let gone = async {
        while deaf.write_all(READYZ_REQUEST).await.is_ok() && deaf.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("the connection is closed");
}
