//! Alert rules and dashboard, checked by Prometheus' own tool, and the figures as they are served.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use anyhow::Result;
use machinist_e2e::lab::Process;
use machinist_e2e::{Lab, cache, command, program, wait_for};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

fn promtool(words: &[&str], file: &Path) {
    let mut promtool = Command::new("promtool");
    command::run(promtool.args(words).arg(file)).unwrap();
}

#[test]
fn promtool_accepts_the_alerts_and_their_tests() {
    let folder = cache::root().join("monitoring");
    promtool(&["check", "rules"], &folder.join("alerts.yaml"));
    promtool(&["test", "rules"], &folder.join("alerts.test.yaml"));
}

#[test]
fn promtool_accepts_every_query_of_the_dashboard() {
    let lab = Lab::new().unwrap();
    let text = fs::read(cache::root().join("monitoring/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_slice(&text).unwrap();
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    let panels = dashboard["panels"].as_array().unwrap().iter();
    for target in panels.flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default())
    {
        // What Grafana puts in place of its variables.
        let query = target["expr"].as_str().unwrap().replace("$pool", "worker");
        writeln!(rules, "  - record: panel\n    expr: {}", Value::from(query)).unwrap();
    }
    let file = lab.folder("rules").unwrap().join("dashboard.yaml");
    fs::write(&file, rules).unwrap();
    promtool(&["check", "rules", "--lint=none"], &file);
}

/// The names of the samples that a process serves.
fn served(address: &str) -> Result<BTreeSet<String>> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let names = samples.filter_map(|line| line.split(['{', ' ']).next());
    Ok(names.map(str::to_owned).collect())
}

/// Waits until a process serves these, and nothing that the table of metrics does not have.
fn serves(process: &mut Process, address: &str, names: &[&str]) {
    let table = fs::read_to_string(cache::root().join("docs/reference/metrics.md")).unwrap();
    let mut found = BTreeSet::new();
    wait_for(&format!("{names:?} at {address}"), || {
        process.alive()?;
        found = served(address)?;
        Ok(names.iter().all(|name| found.contains(*name)))
    })
    .unwrap();
    let ours = found.iter().filter(|name| name.contains('_'));
    let unknown: Vec<_> = ours.filter(|name| !table.contains(&format!("`{name}`"))).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn a_hub_and_a_daemon_serve_what_the_table_says() {
    let lab = Lab::new().unwrap();
    let (data, root) = (lab.folder("data").unwrap(), lab.folder("root").unwrap());
    let (figures, machine) =
        (format!("{}:8797", lab.loopback()), format!("{}:8798", lab.loopback()));
    let kubeconfig = data.join("kubeconfig");
    let mut up = Command::new(program::machinist().unwrap());
    up.args(["up", "--metrics-listen", &figures, "--api-listen"]);
    up.arg(format!("{}:6443", lab.loopback())).arg("--data").arg(&data);
    let mut hub = lab.spawn("hub", &up).unwrap();
    wait_for("the hub", || {
        hub.alive()?;
        Ok(hub.log().contains("Machinist is up"))
    })
    .unwrap();
    let controller = ["machinist_leading", "machinist_api_requests_total", "mco_machine_count"];
    serves(&mut hub, &figures, &controller);

    let mut join = Command::new(program::machinist().unwrap());
    fs::create_dir(root.join("etc")).unwrap();
    join.args(["join", "--node-name", "a", "--root"]).arg(&root);
    command::run(join.arg("--kubeconfig").arg(&kubeconfig)).unwrap();
    let mut daemon = Command::new(program::machinist().unwrap());
    daemon.args(["daemon", "start", "--node-name", "a", "--register", "--listen", &machine]);
    daemon.arg("--root").arg(&root);
    daemon.arg("--kubeconfig").arg(root.join("var/lib/machinist/kubeconfig"));
    let mut daemon = lab.spawn("daemon", &daemon).unwrap();
    let names = ["mcd_state", "mcd_config_drift", "mcd_reboots_failed_total"];
    serves(&mut daemon, &machine, &names);
}
