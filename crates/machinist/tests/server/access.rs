//! Access control: networks, limits, tokens.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::server::fixture::{ConfigServerProcess, MASTER, ServerFixture};

fn file(site: &ServerFixture) -> String {
    format!("--tokens-file={}", site.path("base/provisioning-tokens.yaml").display())
}

fn status(server: &ConfigServerProcess, token: &str) -> u16 {
    server.request("GET", MASTER, &[("Authorization", &format!("Bearer {token}"))]).status
}

#[test]
fn networks_and_limits_apply() {
    let site = ServerFixture::new();
    let server = site.serve(&["--deny-from=127.0.0.0/8"]);
    assert_eq!(server.get(MASTER, "*/*").status, 403);
    assert_eq!(server.get("/healthz", "*/*").status, 200);
    let server = site.serve(&["--allow-from=127.0.0.1", "--rate-limit=3"]);
    let answers: Vec<u16> = (0..4).map(|_| server.get(MASTER, "*/*").status).collect();
    assert_eq!(answers, [200, 200, 200, 503]);
    assert_eq!(server.get(MASTER, "*/*").header("retry-after"), "5");
}

#[test]
fn tokens_in_a_file() {
    let site = ServerFixture::new();
    let server = site.serve(&["--require-token"]);
    // Without a file, no request is accepted.
    assert_eq!(server.get(MASTER, "*/*").status, 401);
    let create = |more: &[&str]| {
        let file = file(&site);
        let arguments = [&["token", "create", &file][..], more].concat();
        site.machinist(&arguments).trim().to_owned()
    };
    let open = create(&["--pool=master"]);
    assert_eq!(status(&server, &open), 200);
    assert_eq!(server.request("GET", &format!("{MASTER}?token={open}"), &[]).status, 200);
    assert_eq!(server.get(MASTER, "*/*").status, 401);
    assert_eq!(status(&server, "abcdef.wrong"), 401);
    // Another pool, another network, an expiry.
    assert_eq!(status(&server, &create(&["--pool=arbiter"])), 403);
    assert_eq!(status(&server, &create(&["--pool=master", "--allow-from=192.0.2.0/24"])), 403);
    assert_eq!(status(&server, &create(&["--pool=master", "--allow-from=127.0.0.0/8"])), 200);
    let short = create(&["--pool=master", "--ttl=1s"]);
    let start = Instant::now();
    while status(&server, &short) == 200 {
        assert!(start.elapsed() < Duration::from_secs(20), "the token does not expire");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(status(&server, &short), 401);
    // Uses are counted, HEAD does not count, and counts survive a restart.
    let twice = create(&["--pool=master", "--uses=2"]);
    let bearer = format!("Bearer {twice}");
    assert_eq!(server.request("HEAD", MASTER, &[("Authorization", &bearer)]).status, 200);
    assert_eq!(status(&server, &twice), 200);
    drop(server);
    let server = site.serve(&["--require-token"]);
    assert_eq!([status(&server, &twice), status(&server, &twice)], [200, 401]);
    // A new token is valid together with the old one until that is revoked.
    let next = create(&["--pool=master"]);
    assert_eq!([status(&server, &open), status(&server, &next)], [200, 200]);
    let id = open.split_once('.').unwrap().0;
    site.machinist(&["token", "revoke", &file(&site), id]);
    assert_eq!([status(&server, &open), status(&server, &next)], [401, 200]);
    let listed = site.machinist(&["token", "list", &file(&site)]);
    assert!(listed.contains("2/2") && listed.contains("192.0.2.0/24"), "{listed}");
    // The audit line names the token by id and contains no secret.
    let line = server.wait_for(&format!("token=\"{}\"", next.split_once('.').unwrap().0));
    let kept = fs::read_to_string(site.path("base/provisioning-tokens.yaml")).unwrap();
    for token in [&open, &next, &twice] {
        let secret = token.split_once('.').unwrap().1;
        assert!(!line.contains(secret) && !kept.contains(secret) && !listed.contains(secret));
    }
    // With an unreadable file, no request is accepted.
    site.write("base/provisioning-tokens.yaml", "junk: [");
    assert_eq!(status(&server, &next), 401);
}

#[test]
fn connections_of_one_address_are_limited() {
    let site = ServerFixture::new();
    let server = site.serve(&["--connection-limit=3"]);
    let mut held: Vec<TcpStream> = (0..3)
        .map(|_| {
            let mut stream = TcpStream::connect(server.plain).unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            stream
        })
        .collect();
    assert_eq!(server.get(MASTER, "*/*").status, 0);
    held.pop();
    let start = Instant::now();
    while server.get(MASTER, "*/*").status != 200 {
        assert!(start.elapsed() < Duration::from_secs(20), "the connection slot is not released");
    }
}
