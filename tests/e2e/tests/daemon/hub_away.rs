//! A hub that is away for a day of the daemon's clock: refused connections first, then connections that nobody answers. The
//! daemon stays bounded in memory, open files, log lines and files, and takes up the new config when the hub is back.
//!
//! libfaketime makes the clock of the daemon fast, timeouts and pauses included, so everything that repeats does so as often as
//! in a day, as far as the host is fast enough.

use super::fixture::{HubFixture, file, files};
use machinist_e2e::lab::LabProcess;
use machinist_e2e::machine::FileTree;
use machinist_e2e::{TcpProxy, binary, wait_for};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const NODE: &str = "away";
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// How fast the clock of the daemon is while the hub is away.
const SPEED: u32 = 3600;
const DAY: u32 = 24 * 3600;
/// Five tasks with four causes each, which are repeated every six hours if they alternate.
const MAX_LOG_LINES: usize = 100;

fn set_clock(clock: &Path, text: &str) {
    let new = clock.with_extension("new");
    fs::write(&new, format!("{text}\n")).unwrap();
    fs::rename(new, clock).unwrap();
}

/// Anonymous memory in kB, and the number of open files.
fn usage(process: &LabProcess) -> (u64, usize) {
    let directory = format!("/proc/{}", process.id());
    let status = fs::read_to_string(format!("{directory}/status")).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let memory = memory.trim().trim_end_matches(" kB").parse().unwrap();
    (memory, fs::read_dir(format!("{directory}/fd")).unwrap().count())
}

#[test]
fn a_hub_that_is_away_for_a_day_costs_nothing_and_is_found_again() {
    let fixture = HubFixture::start();
    let lab = &fixture.lab;
    let address = format!("{}:6443", lab.address());
    let mut proxy = TcpProxy::start(&lab.address(), &address).unwrap();
    let kubeconfig = fs::read_to_string(&fixture.kubeconfig).unwrap();
    let through_proxy = lab.dir().join("through-proxy");
    fs::write(&through_proxy, kubeconfig.replace(&address, &proxy.address().to_string())).unwrap();
    let root = lab.create_dir("root").unwrap();
    fs::create_dir_all(root.join("etc")).unwrap();
    let policy = json!({"files": [{"path": "/etc", "actions": [{"type": "None"}]}]});
    fixture.set_node_disruption_policy(&policy);

    let clock = lab.dir().join("clock");
    set_clock(&clock, "+0 x1");
    assert!(Path::new(LIBRARY).exists(), "environment: {LIBRARY}: install the package faketime");
    let mut daemon = Command::new(binary::machinist_binary().unwrap());
    daemon.env("LD_PRELOAD", LIBRARY).env("FAKETIME_TIMESTAMP_FILE", &clock);
    daemon.env("FAKETIME_CACHE_DURATION", "1").env("MALLOC_ARENA_MAX", "2");
    daemon.args(["daemon", "--register", "--label", "node-role.kubernetes.io/worker="]);
    daemon.args(["--node-name", NODE, "--kubeconfig"]).arg(&through_proxy).arg("--root").arg(&root);
    let mut daemon = lab.spawn("daemon", &daemon).unwrap();
    let wait_done = |daemon: &mut LabProcess, config: &str| {
        let waited = wait_for(&format!("{config} to be done"), || {
            daemon.check_alive()?;
            let node = machinist_e2e::block_on(fixture.nodes().get_opt(NODE))?;
            anyhow::ensure!(node.is_some(), "no Node");
            let [state, current] =
                ["state", "currentConfig"].map(|key| fixture.annotation(NODE, key));
            anyhow::ensure!(state == "Done" && current == config, "{state} on {current}");
            Ok(true)
        });
        if let Err(error) = waited {
            panic!("{error:#}\n{}", daemon.log());
        }
    };
    let first = fixture.apply_config("50-file", &files(&[file("/etc/one", "first\n")]));
    wait_done(&mut daemon, &first);
    let (before, tree) = (usage(&daemon), FileTree::read(&root, Path::new("/")).unwrap());
    let lines_before = daemon.log().lines().count();

    proxy.refuse();
    set_clock(&clock, &format!("+0 x{SPEED}"));
    let second = fixture.apply_config("50-file", &files(&[file("/etc/one", "second\n")]));
    let half = Duration::from_secs(u64::from(DAY / SPEED) / 2);
    let mut most = before;
    for is_silent in [false, true] {
        if is_silent {
            proxy.stall_after(0);
            proxy.accept_again().unwrap();
        }
        let start = Instant::now();
        while start.elapsed() < half {
            daemon.check_alive().unwrap();
            let now = usage(&daemon);
            most = (most.0.max(now.0), most.1.max(now.1));
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let log = daemon.log();
    let lines = log.lines().count() - lines_before;
    let after = usage(&daemon);
    eprintln!("usage {before:?}, at most {most:?}, then {after:?}; {lines} log lines in a day");
    assert!(lines <= MAX_LOG_LINES, "{lines} lines:\n{log}");
    assert!(lines > 0, "nothing was said about it:\n{log}");
    assert!(most.0 <= before.0 + 8192, "memory {before:?} {most:?}");
    assert!(most.1 <= before.1 + 16, "files {before:?} {most:?}");
    let changes = tree.changes(&FileTree::read(&root, Path::new("/")).unwrap());
    assert_eq!(changes, Vec::<String>::new());

    // The clock goes on from there, as fast as any other.
    set_clock(&clock, &format!("+{} x1", 5 * DAY));
    proxy.resume();
    wait_done(&mut daemon, &second);
    assert_eq!(fs::read_to_string(root.join("etc/one")).unwrap(), "second\n");
    let again = lines_before + lines + MAX_LOG_LINES;
    assert!(daemon.log().lines().count() <= again, "{}", daemon.log());
}
