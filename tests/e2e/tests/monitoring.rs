//! Alert rules and dashboard, checked by Prometheus' own tool, and the figures as they are served.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use anyhow::Result;
use machinist_e2e::lab::Process;
use machinist_e2e::page::fetch;
use machinist_e2e::{Lab, cache, command, program, wait_for};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
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
    let text = fetch(address, "/metrics")?;
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let names = samples.filter_map(|line| line.split(['{', ' ']).next());
    // A histogram has several samples, and one name in the table.
    let plain = |name: &str| {
        let ends = ["_bucket", "_sum", "_count"];
        let plain = ends.iter().find_map(|end| name.strip_suffix(end));
        plain.filter(|plain| plain.ends_with("_seconds")).unwrap_or(name).to_owned()
    };
    Ok(names.map(plain).collect())
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
    up.args(["--server-anonymous", "--server-insecure-listen"]);
    up.arg(format!("{}:22624", lab.loopback()));
    let mut hub = lab.spawn("hub", &up).unwrap();
    wait_for("the hub", || {
        hub.alive()?;
        Ok(hub.log().contains("Machinist is up"))
    })
    .unwrap();
    let controller = ["machinist_leading", "machinist_api_requests_total", "mco_machine_count"];
    serves(&mut hub, &figures, &controller);
    let of_hub = [
        "machinist_hub_requests_total",
        "machinist_hub_request_seconds",
        "machinist_hub_watches",
        "machinist_hub_commit_seconds",
        "machinist_hub_store_file_bytes",
        "machinist_hub_store_writable",
    ];
    serves(&mut hub, &figures, &of_hub);
    fetch(&format!("{}:22624", lab.loopback()), "/config/worker").unwrap();
    let of_server = ["machinist_server_requests_total", "machinist_server_duration_seconds"];
    serves(&mut hub, &figures, &of_server);

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
