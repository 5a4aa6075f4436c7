//! Floods: HTTP/2 frames and half a TLS handshake without a certificate, watches with a token. The hub stays small and
//! answers others.

use crate::hub_hostile::{dialer, worst_latency};
use crate::hub_support::HubProcess;
use crate::hub_support::raw::{
    HTTP2_PREFACE, RawTlsDialer, frame, http2_head, http2_head_with_token, read_response, request,
};
use machinist_e2e::environment::raise_file_limit;
use machinist_e2e::measurements;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM_AND_HEADERS: u8 = 0x5;

/// Frames in one write.
const BATCH: u32 = 100;
/// How many attackers flood at once, and for how long.
const ATTACKERS: usize = 8;
const FLOOD_DURATION: Duration = Duration::from_secs(4);

/// The n-th batch of a flood.
type Flood = fn(u32) -> Vec<u8>;

/// Requests that are cancelled as soon as they are sent (CVE-2023-44487).
fn rapid_reset(batch: u32) -> Vec<u8> {
    let head = http2_head("/readyz");
    let streams = (batch * BATCH..(batch + 1) * BATCH).map(|index| index * 2 + 1);
    let cancelled = |stream| {
        let request = frame(HEADERS, END_STREAM_AND_HEADERS, stream, &head);
        [request, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    };
    streams.flat_map(cancelled).collect()
}

/// One request whose header block never ends (CVE-2024-27316 and others).
fn continuation(batch: u32) -> Vec<u8> {
    let name_and_value = [&[0, 1, b'a', 100][..], &[b'x'; 100]].concat();
    let part = frame(CONTINUATION, 0, 1, &name_and_value.repeat(10));
    let mut bytes = part.repeat(BATCH as usize);
    if batch == 0 {
        bytes.splice(0..0, frame(HEADERS, 0, 1, &http2_head("/readyz")));
    }
    bytes
}

/// Settings that the server has to acknowledge, and an attacker that does not read.
fn settings(_: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]).repeat(BATCH as usize)
}

/// Pings that the server has to answer.
fn pings(_: u32) -> Vec<u8> {
    frame(PING, 0, 0, &[7; 8]).repeat(BATCH as usize)
}

/// Floods the hub until `stop` is set; connects again when the hub closes the connection. Returns the number of
/// connections that were needed.
fn attack(dialer: &RawTlsDialer, flood: Flood, sent: &AtomicU64, stop: &AtomicBool) -> u64 {
    let mut connections = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut connection) = dialer.anonymous_http2() else { continue };
        connections += 1;
        let timeout = Some(Duration::from_millis(200));
        connection.sock.set_write_timeout(timeout).unwrap();
        connection.sock.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let opening = [HTTP2_PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        let mut is_open = connection.write_all(&opening).is_ok();
        for batch in 0.. {
            let bytes = flood(batch);
            is_open &= connection.write_all(&bytes).is_ok();
            sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            // A connection that the server has ended says so only to a reader.
            is_open &= match connection.read(&mut [0; 4096]) {
                Ok(count) => count > 0,
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            };
            if !is_open || stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    connections
}

fn withstand(name: &str, flood: Flood) {
    let mut hub = HubProcess::start().unwrap();
    let dialer = dialer(&hub);
    let (calm, before) = (worst_latency(&dialer), hub.memory());
    let (sent, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut worst, mut memory) = (Duration::ZERO, 0);
    let connections: u64 = std::thread::scope(|scope| {
        let attackers: Vec<_> =
            (0..ATTACKERS).map(|_| scope.spawn(|| attack(&dialer, flood, &sent, &stop))).collect();
        let start = Instant::now();
        while start.elapsed() < FLOOD_DURATION {
            worst = worst.max(worst_latency(&dialer));
            memory = memory.max(hub.memory());
        }
        stop.store(true, Ordering::Relaxed);
        attackers.into_iter().map(|attacker| attacker.join().unwrap()).sum()
    });
    let held = memory.saturating_sub(before) >> 20;
    let sent = sent.load(Ordering::Relaxed) >> 20;
    let summary = format!(
        "{sent} MB of frames over {connections} connections: {held} MB; worst answer {worst:.1?}, {calm:.1?} before"
    );
    eprintln!("{summary}");
    measurements::record(&format!("hub-flood-{name}"), &summary).unwrap();
    hub.check_alive().unwrap();
    assert!(sent > 0, "the flood did not happen: {summary}");
    assert!(held < 100, "{summary}");
    // The attackers and the hub share the same few cores.
    assert!(worst < Duration::from_secs(5), "{summary}");
    assert!(worst_latency(&dialer) < Duration::from_secs(2), "slow after the flood");
}

#[test]
fn a_rapid_reset_flood_does_not_block_others() {
    withstand("rapid-reset", rapid_reset);
}

#[test]
fn a_continuation_flood_does_not_block_others() {
    withstand("continuation", continuation);
}

#[test]
fn a_settings_flood_does_not_block_others() {
    withstand("settings", settings);
}

#[test]
fn a_ping_flood_does_not_block_others() {
    withstand("ping", pings);
}

/// What a client has after it has done its worst, and still holds.
fn withstand_held<T>(
    name: &str,
    what: &str,
    max_mb: u64,
    hold: impl FnOnce(&HubProcess, &RawTlsDialer) -> T,
) {
    raise_file_limit();
    let mut hub = HubProcess::start().unwrap();
    let dialer = dialer(&hub);
    let (calm, before) = (worst_latency(&dialer), hub.memory());
    let held = hold(&hub, &dialer);
    let (worst, memory) = (worst_latency(&dialer), hub.memory().saturating_sub(before) >> 20);
    let summary = format!("{what}: {memory} MB; worst answer {worst:.1?}, {calm:.1?} before");
    eprintln!("{summary}");
    measurements::record(&format!("hub-flood-{name}"), &summary).unwrap();
    hub.check_alive().unwrap();
    assert!(memory < max_mb, "{summary}");
    assert!(worst < Duration::from_secs(5), "{summary}");
    drop(held);
}

#[test]
fn half_open_handshakes_do_not_block_others() {
    const HALF_OF_A_CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    withstand_held("half-open", "3000 half-open handshakes", 100, |_, dialer| {
        let open = |_| {
            let mut stream = dialer.tcp().unwrap();
            let _ = stream.write_all(HALF_OF_A_CLIENT_HELLO); // the hub may have closed it
            stream
        };
        (0..3000).map(open).collect::<Vec<TcpStream>>()
    });
}

/// 40 connections of one token with 200 streams each, all of them watches whose client reads nothing, while each
/// change has 100 KB.
#[test]
fn a_flood_of_watches_does_not_block_others() {
    const NODES: &str = "/api/v1/nodes";
    let post = |dialer: &RawTlsDialer, path: &str, body: &str| {
        let json = [("content-type", "application/json")];
        let response = dialer.request(&request("POST", path, &json, body.as_bytes())).unwrap();
        assert!(response.code < 300, "{response:?}");
        response.json()
    };
    withstand_held("watches", "8000 watches that nobody reads", 300, |_, dialer| {
        let token = post(dialer, "/machinist/v1/tokens", r#"{"role": "viewer"}"#);
        let head =
            http2_head_with_token(&format!("{NODES}?watch=1"), token["token"].as_str().unwrap());
        let watches = |_| {
            let mut bytes = HTTP2_PREFACE.to_vec();
            bytes.extend(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])); // no window on any stream
            let streams = (0..200u32).map(|index| index * 2 + 1);
            bytes.extend(streams.flat_map(|id| frame(HEADERS, END_STREAM_AND_HEADERS, id, &head)));
            let mut connection = dialer.anonymous_http2().unwrap();
            let _ = connection.write_all(&bytes).and_then(|()| connection.flush());
            connection
        };
        let connections: Vec<_> = (0..40).map(watches).collect();
        let filler = "x".repeat(100_000);
        for index in 0..100 {
            let node = format!(
                r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"n{index}","annotations":{{"x":"{filler}"}}}}}}"#
            );
            post(dialer, NODES, &node);
        }
        // The limit was reached: one more watch of the token is refused, and the others are honest clients.
        let mut late = dialer.anonymous().unwrap();
        let bearer = format!("Bearer {}", token["token"].as_str().unwrap());
        let watch = request("GET", &format!("{NODES}?watch=1"), &[("authorization", &bearer)], b"");
        late.write_all(&watch).unwrap();
        assert_eq!(read_response(&mut late).unwrap().code, 429);
        connections
    });
}
