//! A hub that is gone: each machine says so once, with the cause and the address.

use std::time::Instant;

use super::fleet::{DEADLINE, Fleet};

/// The tasks of a daemon that notice, each with one line.
const MAX_LINES: usize = 8;

pub(super) fn an_unreachable_hub_is_logged_once_with_its_address(fleet: &mut Fleet) {
    let kubeconfig = fleet.directory.path().join("data/kubeconfig");
    let kubeconfig = std::fs::read_to_string(kubeconfig).unwrap();
    let server = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
    let before = fleet.log("w2").lines().count();
    fleet.stop_hub();
    let start = Instant::now();
    // The lease is renewed every ten seconds: with it, every task has noticed.
    let lines = loop {
        let log = fleet.log("w2");
        let lines: Vec<String> = log.lines().skip(before).map(str::to_owned).collect();
        let is_refused =
            |line: &String| line.contains("renew the lease") && line.contains("Connection refused");
        if lines.iter().any(is_refused) {
            break lines;
        }
        assert!(start.elapsed() < DEADLINE, "{log}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    let failures: Vec<&String> = lines.iter().filter(|it| it.contains("a task fails")).collect();
    assert!(failures.iter().all(|line| line.contains(server)), "{failures:#?}");
    assert!(lines.len() <= MAX_LINES, "{lines:#?}");
}
