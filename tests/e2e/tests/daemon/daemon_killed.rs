//! A daemon that is killed at any time continues from the state of the Node and the disk.

use super::fixture::{HubFixture, file, files};
use machinist_e2e::{binary, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const ROUNDS: u64 = 16;

/// A daemon that does not outlive its test.
struct DaemonProcess(Child);

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(fixture: &HubFixture, root: &Path) -> DaemonProcess {
    let mut daemon = Command::new(binary::machinist_binary().unwrap());
    daemon.args(["daemon", "--register", "--label", "node-role.kubernetes.io/worker="]);
    daemon.args(["--node-name", "killed", "--kubeconfig"]).arg(&fixture.kubeconfig);
    let mut options = fs::OpenOptions::new();
    let log = options.create(true).append(true).open(root.with_extension("log")).unwrap();
    DaemonProcess(daemon.arg("--root").arg(root).stderr(log).stdout(Stdio::null()).spawn().unwrap())
}

fn wait_done(fixture: &HubFixture, root: &Path, config: &str) {
    let waited = wait_for("the daemon to be done", || {
        let state = fixture.annotation("killed", "state");
        anyhow::ensure!(state == "Done", "{state}: {}", fixture.annotation("killed", "reason"));
        Ok(fixture.annotation("killed", "currentConfig") == config)
    });
    if let Err(error) = waited {
        panic!("{error:#}\n{}", fs::read_to_string(root.with_extension("log")).unwrap());
    }
}

#[test]
fn a_daemon_killed_at_any_time_recovers() {
    let fixture = HubFixture::start();
    let root = fixture.lab.create_dir("killed").unwrap();
    fs::create_dir_all(root.join("etc")).unwrap();
    fixture.set_node_disruption_policy(
        &json!({"files": [{"path": "/etc", "actions": [{"type": "None"}]}]}),
    );
    let mut daemon = start(&fixture, &root);
    wait_for("the machine to join", || {
        let node = machinist_e2e::block_on(fixture.nodes().get_opt("killed"))?;
        Ok(node.is_some() && fixture.annotation("killed", "state") == "Done")
    })
    .unwrap();
    for round in 0..ROUNDS {
        let text = |n: u64| format!("round {round} file {n}\n");
        let list: Vec<Value> =
            (0..10).map(|n| file(&format!("/etc/files/{}", n + round % 3), &text(n))).collect();
        let config = fixture.apply_config("50-files", &files(&list));
        // Anywhere between seeing the config and being done, at a different point each round.
        std::thread::sleep(Duration::from_millis(round * 23 % 300));
        drop(daemon);
        daemon = start(&fixture, &root);
        wait_done(&fixture, &root, &config);
        let mut names: Vec<String> = fs::read_dir(root.join("etc/files"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_by_key(|name| name.parse::<u64>().unwrap());
        let expected: Vec<String> = (0..10).map(|n| (n + round % 3).to_string()).collect();
        assert_eq!(names, expected, "round {round}");
        for n in 0..10 {
            let path = root.join(format!("etc/files/{}", n + round % 3));
            assert_eq!(fs::read_to_string(path).unwrap(), text(n), "round {round}");
        }
        assert!(!root.join("etc/machine-config-daemon/machinist-pending.json").exists());
    }
    // An idle daemon stops immediately on SIGTERM.
    let pid = rustix::process::Pid::from_child(&daemon.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(daemon.0.wait().unwrap().success());
}
