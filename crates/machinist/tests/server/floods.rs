//! Floods and clients that hold connections: the server stays small and serves the machines that boot.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::faults::{memory, raise_file_limit};
use super::fixture::{ConfigServerProcess, MASTER, ServerFixture, TlsClient, request_tls};

/// How long the flood takes, and how many clients flood.
const FLOOD_DURATION: Duration = Duration::from_secs(3);
const FLOODERS: usize = 8;
/// The longest answer to an honest client. The attackers and the server share the same few cores.
const MAX_ANSWER: Duration = Duration::from_secs(5);

/// The slowest of five requests of a machine that boots.
fn worst_answer(site: &ServerFixture, server: &ConfigServerProcess) -> Duration {
    let answer = |_| {
        let start = Instant::now();
        let (_, response) = request_tls(site, server, &TlsClient::default(), MASTER).unwrap();
        assert_eq!(response.status, 200);
        start.elapsed()
    };
    (0..5).map(answer).max().unwrap_or_default()
}

/// Checks memory and answer time while `hold` lasts.
fn withstand<T>(
    what: &str,
    max_kb: u64,
    site: &ServerFixture,
    hold: impl FnOnce(&ConfigServerProcess) -> T,
) {
    raise_file_limit();
    let server = site.serve(&[]);
    let (calm, before) = (worst_answer(site, &server), memory(&server));
    let held = hold(&server);
    let (worst, grown) = (worst_answer(site, &server), memory(&server).saturating_sub(before));
    let summary = format!("{what}: {grown} kB; worst answer {worst:.1?}, {calm:.1?} before");
    eprintln!("{summary}");
    assert!(grown < max_kb, "{summary}");
    assert!(worst < MAX_ANSWER, "{summary}");
    drop(held);
}

fn connect(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let _ = stream.write_all(bytes);
    stream
}

#[test]
fn half_open_handshakes_do_not_block_machines() {
    const HALF_OF_A_CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let site = ServerFixture::new();
    withstand("3000 half-open handshakes", 100_000, &site, |server| {
        (0..3000).map(|_| connect(server.secure, HALF_OF_A_CLIENT_HELLO)).collect::<Vec<_>>()
    });
}

/// Each response has 400 KB.
#[test]
fn clients_that_do_not_read_do_not_block_machines() {
    let site = ServerFixture::new();
    let source = format!("data:,{}", "x".repeat(400 << 10));
    let files = json!([{"path": "/etc/large", "contents": {"source": source}}]);
    site.config_with("rendered-master-2", &json!({"storage": {"files": files}}));
    site.pool("master", "rendered-master-2");
    withstand("1000 clients that read nothing", 300_000, &site, |server| {
        let request = format!("GET {MASTER} HTTP/1.1\r\nhost: x\r\n\r\n");
        (0..1000).map(|_| connect(server.plain, request.as_bytes())).collect::<Vec<_>>()
    });
}

/// The server does not speak HTTP/2: whatever such a client floods it with, the connection ends.
#[test]
fn a_flood_of_http2_frames_ends_its_connection() {
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for stream in 0..1000u32 {
        // A request, and its cancellation.
        let id = (stream * 2 + 1).to_be_bytes();
        flood.extend(
            [&b"\0\0\x01\x01\x05"[..], &id, b"\x82", b"\0\0\x04\x03\0", &id, b"\0\0\0\x08"]
                .concat(),
        );
    }
    let site = ServerFixture::new();
    let server = site.serve(&[]);
    let (calm, before) = (worst_answer(&site, &server), memory(&server));
    let stop = AtomicBool::new(false);
    let (mut worst, mut grown) = (Duration::ZERO, 0);
    std::thread::scope(|scope| {
        for _ in 0..FLOODERS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut stream = connect(server.plain, &flood);
                    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                    let mut response = Vec::new();
                    let _ = stream.read_to_end(&mut response); // reset, if it was not read to the end
                    assert!(response.is_empty() || response.starts_with(b"HTTP/1.1 4"));
                }
            });
        }
        let start = Instant::now();
        while start.elapsed() < FLOOD_DURATION {
            worst = worst.max(worst_answer(&site, &server));
            grown = grown.max(memory(&server).saturating_sub(before));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let summary = format!(
        "a flood of HTTP/2 frames: {grown} kB; worst answer {worst:.1?}, {calm:.1?} before"
    );
    eprintln!("{summary}");
    assert!(grown < 100_000 && worst < MAX_ANSWER, "{summary}");
}
