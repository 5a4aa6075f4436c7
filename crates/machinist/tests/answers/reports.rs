//! `machinist logs`, `diff --live` and `managed`: what a machine says about itself, and to whom.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::{fs, thread};

use serde_json::{Value, json};

use super::fleet::{DEADLINE, Fleet, texts};
use super::viewer;

fn key_file(contents: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {
            "name": "60-key", "labels": {"machineconfiguration.openshift.io/role": "worker"},
            "annotations": {"machinist.dev/on-change": "none"},
        },
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [{
            "path": "/etc/app.key", "mode": 384, "contents": {"source": format!("data:,{contents}")},
        }]}}},
    })
}

pub(super) fn a_machine_answers_who_may_ask(fleet: &Fleet) {
    fleet.apply(&[key_file("hunter1")]);
    fleet.rolled_out();
    let same = fleet.ok(&["diff", "--live", "w1", "--timeout", "120s"]);
    assert!(same.starts_with("w1 has what rendered-worker-"), "{same}");

    fs::write(fleet.root("w1").join("etc/motd"), "by \u{1b}[2Jhand").unwrap();
    fs::write(fleet.root("w1").join("etc/app.key"), "hunter2").unwrap();
    let differs = fleet.run(&["diff", "--live", "w1", "--timeout", "120s"]);
    let (text, error) = texts(&differs);
    assert_eq!(differs.status.code(), Some(3), "{text}{error}{}", fleet.logs());
    for part in ["~ /etc/motd", "    -one", "    +by \u{fffd}[2Jhand", "machinist heal w1"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("~ /etc/app.key\n    contents: (secret) → (secret)"), "{text}");
    let json = fleet.run(&["diff", "--live", "w1", "-o", "json", "--timeout", "120s"]);
    let json = texts(&json).0;
    assert!(json.contains("\"path\": \"/etc/app.key\"") && !json.contains("hunter"), "{json}");

    let log = fleet.ok(&["logs", "w1", "--timeout", "120s"]);
    assert!(log.contains("Config Drift Monitor started"), "{log}");
    let last = fleet.ok(&["logs", "w1", "--lines", "1", "--timeout", "120s"]);
    assert_eq!(last.lines().count(), 1, "{last}");
    new_lines_follow(fleet);
    nothing_is_left_of_the_questions(fleet);
    others_may_not_ask(fleet);
}

/// `logs -f` shows what happens while it runs: here the end of the drift.
fn new_lines_follow(fleet: &Fleet) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(["logs", "w1", "-f", "--lines", "0", "--timeout", "120s"]);
    command.env("KUBECONFIG", fleet.directory.path().join("data/kubeconfig"));
    let mut follower = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = follower.stdout.take().unwrap();
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    // The first answer is asked for before the command follows.
    fleet.wait_for(&["get", "node", "w1", "-o", "json"], "\\\"follow\\\":true");
    fleet.ok(&["heal", "w1", "--timeout", "120s"]);
    let end = std::time::Instant::now() + DEADLINE;
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now());
        let line = lines.recv_timeout(left).unwrap_or_else(|_| panic!("{}", fleet.logs()));
        if line.contains("Config Drift Monitor") || line.contains("heal") {
            break;
        }
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(follower.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(follower.wait().unwrap().success());
    // Its last request stays: it was interrupted. The next question takes its place.
    fleet.ok(&["logs", "w1", "--lines", "1", "--timeout", "120s"]);
}

fn nothing_is_left_of_the_questions(fleet: &Fleet) {
    let node = fleet.ok(&["get", "node", "w1", "-o", "json"]);
    assert!(!node.contains("machinist.dev/report"), "{node}");
    let start = std::time::Instant::now();
    while fleet
        .ok(&["get", "machineconfignode", "w1", "-o", "json"])
        .contains("machinist.dev/report")
    {
        assert!(start.elapsed() < DEADLINE, "the answer stays: {}", fleet.logs());
        thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// A viewer reads every Node and MachineConfigNode, and another machine its own: neither may ask, and what they can
/// read is encrypted for someone else.
fn others_may_not_ask(fleet: &Fleet) {
    let viewer = viewer(fleet);
    let machine = fleet.root("w2").join("var/lib/machinist/kubeconfig");
    for kubeconfig in [&viewer, &machine] {
        for command in [&["logs", "w1"][..], &["diff", "--live", "w1"]] {
            let refused = fleet.run_as(kubeconfig, command);
            let (text, error) = texts(&refused);
            assert_eq!(refused.status.code(), Some(1), "{command:?}: {text}{error}");
            assert!(error.contains("forbidden") && text.is_empty(), "{error}");
        }
    }
    // A request that is not one is ignored, and does not keep the machine from answering the next.
    for bad in [
        "{",
        "{\"id\":\"1\",\"report\":\"log\",\"recipient\":\"x\",\"after\":\"--file=/etc/shadow\"}",
    ] {
        fleet.ok(&[
            "annotate",
            "node",
            "w1",
            "--overwrite",
            &format!("machinist.dev/report-request={bad}"),
        ]);
        fleet.ok(&["logs", "w1", "--lines", "1", "--timeout", "120s"]);
    }
    let unknown = fleet.run(&["logs", "w9"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(texts(&unknown).1.contains("w9"), "{}", texts(&unknown).1);
}

pub(super) fn a_machine_says_what_is_machinists(fleet: &Fleet) {
    let root = fleet.root("w1").display().to_string();
    let managed = fleet.ok(&["managed", "--root", &root]);
    let line = |path: &str| {
        let mut lines = managed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines
            .find(|words| words.first() == Some(&path))
            .unwrap_or_else(|| panic!("{path}: {managed}"))
    };
    assert_eq!(line("/etc/motd")[1], "50-motd");
    assert_eq!(line("/etc/app.key")[1..], ["60-key", "nothing"]);
    assert!(managed.contains("\n/var/lib/machinist\n"), "{managed}");
    let json: Value =
        serde_json::from_str(&fleet.ok(&["managed", "--root", &root, "-o", "json"])).unwrap();
    assert_eq!(json["paths"][0]["machineConfig"], "60-key");
    assert_eq!(json["paths"][0]["before"]["was"], "nothing");
}
