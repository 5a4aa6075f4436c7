//! Certificates that change, and clients that misbehave.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::server::fixture::{
    ConfigServerProcess, MASTER, ServerFixture, TlsClient, request_tls, wait_for,
};

/// The number of connections that never finish the head of a request.
const SLOW: usize = 10_000;

fn request(
    site: &ServerFixture,
    server: &ConfigServerProcess,
    tls: &TlsClient<'_>,
) -> std::io::Result<(Vec<u8>, u16)> {
    request_tls(site, server, tls, MASTER).map(|(shown, response)| (shown, response.status))
}

#[test]
fn tls_and_a_new_certificate_without_a_restart() {
    let site = ServerFixture::new();
    let server = site.serve(&[]);
    let (first, status) = request(&site, &server, &TlsClient::default()).unwrap();
    assert_eq!(status, 200);
    assert_eq!(
        request(
            &site,
            &server,
            &TlsClient { alpn: &[b"h2", b"http/1.1"], old: true, ..TlsClient::default() }
        )
        .unwrap()
        .1,
        200
    );
    assert!(
        request(&site, &server, &TlsClient { alpn: &[b"h2"], ..TlsClient::default() }).is_err()
    );
    // Requests in between do not fail.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(request(&site, &server, &TlsClient::default()).unwrap().1, 200);
                }
            });
        }
        site.issue("two");
        wait_for(&server.log, "serving certificate replaced");
        done.store(true, Ordering::Relaxed);
    });
    let (second, status) = request(&site, &server, &TlsClient::default()).unwrap();
    assert_eq!(status, 200);
    assert_ne!(first, second);
    // An invalid certificate leaves the old one in use.
    site.write("tls.crt", "junk");
    server.wait_for("a task fails and is retried");
    assert_eq!(request(&site, &server, &TlsClient::default()).unwrap(), (second, 200));
}

#[test]
fn requests_that_are_not_http_do_no_harm() {
    let site = ServerFixture::new();
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

/// The alert that the server sends for a client hello with only a version and cipher suites.
fn alert(server: &ConfigServerProcess, version: [u8; 2], suites: &[[u8; 2]]) -> Option<u8> {
    let suites = suites.concat();
    let mut hello = vec![version[0], version[1]];
    hello.extend([7; 32]);
    hello.push(0);
    hello.extend(u16::try_from(suites.len()).unwrap().to_be_bytes());
    hello.extend(&suites);
    hello.extend([1, 0]);
    // TLS 1.2 needs these extensions: groups and signature algorithms.
    let groups = [0, 10, 0, 4, 0, 2, 0, 23];
    let signatures = [0, 13, 0, 6, 0, 4, 4, 3, 4, 1];
    hello.extend(u16::try_from(groups.len() + signatures.len()).unwrap().to_be_bytes());
    hello.extend(groups.iter().chain(&signatures));
    let mut message = vec![1, 0];
    message.extend(u16::try_from(hello.len()).unwrap().to_be_bytes());
    message.extend(hello);
    let mut record = vec![22, 3, 1];
    record.extend(u16::try_from(message.len()).unwrap().to_be_bytes());
    record.extend(message);
    let mut stream = TcpStream::connect(server.secure).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&record).unwrap();
    let mut response = [0; 7];
    stream.read_exact(&mut response).ok()?;
    (response[0] == 21).then_some(response[6])
}

#[test]
fn old_tls_and_weak_suites_are_refused() {
    const PROTOCOL_VERSION: u8 = 70;
    const HANDSHAKE_FAILURE: u8 = 40;
    let site = ServerFixture::new();
    let server = site.serve(&[]);
    // ECDHE with ECDSA and AES-GCM; the same with CBC and SHA-1; RSA without ECDHE; 3DES.
    let (good, weak) = ([0xC0, 0x2B], [[0xC0, 0x09], [0xC0, 0x13], [0x00, 0x2F], [0x00, 0x0A]]);
    assert_eq!(alert(&server, [3, 3], &[good]), None);
    assert_eq!(alert(&server, [3, 3], &weak), Some(HANDSHAKE_FAILURE));
    assert_eq!(alert(&server, [3, 2], &[good]), Some(PROTOCOL_VERSION));
    assert_eq!(alert(&server, [3, 1], &[good]), Some(PROTOCOL_VERSION));
    // Also with the oldest profile.
    let server = site.serve(&[
        "--tls-min-version=VersionTLS10",
        "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    ]);
    assert_eq!(alert(&server, [3, 2], &[good]), Some(PROTOCOL_VERSION));
    assert_eq!(alert(&server, [3, 3], &weak), Some(HANDSHAKE_FAILURE));
    assert_eq!(
        request(&site, &server, &TlsClient { old: true, ..TlsClient::default() }).unwrap().1,
        200
    );
    // The newest profile allows only TLS 1.3.
    let server = site
        .serve(&["--tls-min-version=VersionTLS13", "--tls-cipher-suites=TLS_AES_128_GCM_SHA256"]);
    assert!(request(&site, &server, &TlsClient { old: true, ..TlsClient::default() }).is_err());
    assert_eq!(request(&site, &server, &TlsClient::default()).unwrap().1, 200);
    // The version alone is enough.
    let server = site.serve(&["--tls-min-version=VersionTLS13"]);
    assert_eq!(alert(&server, [3, 3], &[good]), Some(PROTOCOL_VERSION));
    assert!(request(&site, &server, &TlsClient { old: true, ..TlsClient::default() }).is_err());
    assert_eq!(request(&site, &server, &TlsClient::default()).unwrap().1, 200);
}

#[test]
fn a_mistyped_tls_version_is_not_a_lower_one() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_machinist"));
    let output = command.args(["server", "bootstrap", "--tls-min-version=1.3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("VersionTLS13"), "{output:?}");
}

#[test]
fn random_bytes_and_huge_names_do_no_harm() {
    let site = ServerFixture::new();
    let server = site.serve(&[]);
    // A fixed seed: the same bytes in every run.
    let mut state = 42u64;
    let mut byte = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        u8::try_from(state >> 56).unwrap()
    };
    for round in 0..200usize {
        let mut bytes: Vec<u8> = (0..round * 7 % 600 + 1).map(|_| byte()).collect();
        if round % 3 == 0 {
            bytes.splice(0..0, *b"GET /config/");
            bytes.extend(b" HTTP/1.1\r\n\r\n");
        }
        let address = if round % 2 == 0 { server.plain } else { server.secure };
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let long = format!("/config/{}", "a".repeat(8000));
    assert_eq!(server.get(&long, "*/*").status, 500);
    let line = server.wait_for(&"a".repeat(100));
    assert!(line.len() < 1000, "{}", line.len());
    let longer = format!("/config/{}", "a".repeat(100_000));
    assert!(matches!(server.get(&longer, "*/*").status, 0 | 414 | 431));
    assert_eq!(server.get(MASTER, "*/*").status, 200);
}

#[test]
fn slow_clients_use_little_memory_and_are_disconnected() {
    raise_file_limit();
    let site = ServerFixture::new();
    let server = site.serve(&[]);
    let mut slow: Vec<TcpStream> = (0..SLOW)
        .map(|number| {
            let address = if number % 2 == 0 { server.plain } else { server.secure };
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = stream.write_all(b"GET /config/master HTTP/1.1\r\nX: ");
            stream
        })
        .collect();
    // Other clients are served.
    let start = std::time::Instant::now();
    assert_eq!(server.get(MASTER, "*/*").status, 200);
    assert_eq!(request(&site, &server, &TlsClient::default()).unwrap().1, 200);
    let (memory, answer) = (memory(&server), start.elapsed());
    eprintln!("{memory} kB for {SLOW} connections; two answers in {answer:.1?}");
    assert!(memory < 400_000, "{memory} kB for {SLOW} connections");
    assert!(answer < Duration::from_secs(10), "{answer:.1?}");
    // The time for a request head is limited.
    let last = slow.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let _ = last.read_to_end(&mut Vec::new());
    let first = &mut slow[0];
    first.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert!(first.read_to_end(&mut Vec::new()).is_ok(), "the server keeps the connection open");
    assert_eq!(server.get(MASTER, "*/*").status, 200);
}

/// Lets this process open as many connections as the host allows.
pub(super) fn raise_file_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
}

/// The resident memory of a server, in kB.
pub(super) fn memory(server: &ConfigServerProcess) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    memory.trim().trim_end_matches(" kB").parse().unwrap()
}
