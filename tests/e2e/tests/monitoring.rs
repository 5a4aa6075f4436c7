//! Alert rules and dashboard, checked by Prometheus' own tool, and the metrics as they are served.

use anyhow::Result;
use machinist_e2e::http_get::http_get;
use machinist_e2e::lab::LabProcess;
use machinist_e2e::{Lab, binary, cache, command, wait_for};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

fn promtool(args: &[&str], file: &Path) {
    let mut promtool = Command::new("promtool");
    command::run(promtool.args(args).arg(file)).unwrap();
}

#[test]
fn promtool_accepts_the_alerts_and_their_tests() {
    let dir = cache::source_root().join("monitoring");
    promtool(&["check", "rules"], &dir.join("alerts.yaml"));
    promtool(&["test", "rules"], &dir.join("alerts.test.yaml"));
}

#[test]
fn promtool_accepts_the_scrape_configuration() {
    let lab = Lab::new().unwrap();
    let text = fs::read_to_string(cache::source_root().join("monitoring/prometheus.yaml")).unwrap();
    // Debian builds promtool without the discovery of Kubernetes.
    let discovery = "  kubernetes_sd_configs:\n  - role: endpointslice\n    \
                     namespaces: {names: [openshift-machine-config-operator]}\n";
    assert!(text.contains(discovery), "{text}");
    let file = lab.create_dir("prometheus").unwrap().join("prometheus.yaml");
    fs::write(&file, text.replace(discovery, "  static_configs: [{targets: ['a:1']}]\n")).unwrap();
    promtool(&["check", "config", "--syntax-only"], &file);
}

#[test]
fn promtool_accepts_every_query_of_the_dashboard() {
    let lab = Lab::new().unwrap();
    let text = fs::read(cache::source_root().join("monitoring/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_slice(&text).unwrap();
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    let panels = dashboard["panels"].as_array().unwrap().iter();
    for target in panels.flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default())
    {
        // What Grafana substitutes for its variables.
        let query = target["expr"].as_str().unwrap().replace("$pool", "worker");
        writeln!(rules, "  - record: panel\n    expr: {}", Value::from(query)).unwrap();
    }
    let file = lab.create_dir("rules").unwrap().join("dashboard.yaml");
    fs::write(&file, rules).unwrap();
    promtool(&["check", "rules", "--lint=none"], &file);
}

/// The names of the samples that a process serves.
fn served_metrics(address: &str) -> Result<BTreeSet<String>> {
    let text = http_get(address, "/metrics")?;
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

/// Waits until a process serves these metrics, and none that the table of metrics lacks.
fn wait_for_metrics(process: &mut LabProcess, address: &str, names: &[&str]) {
    let table = fs::read_to_string(cache::source_root().join("docs/reference/metrics.md")).unwrap();
    let mut found = BTreeSet::new();
    wait_for(&format!("{names:?} at {address}"), || {
        process.check_alive()?;
        found = served_metrics(address)?;
        Ok(names.iter().all(|name| found.contains(*name)))
    })
    .unwrap();
    let ours = found.iter().filter(|name| name.contains('_'));
    let unknown: Vec<_> = ours.filter(|name| !table.contains(&format!("`{name}`"))).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn a_hub_and_a_daemon_serve_the_documented_metrics() {
    let lab = Lab::new().unwrap();
    let (data, root) = (lab.create_dir("data").unwrap(), lab.create_dir("root").unwrap());
    let (metrics, machine) =
        (format!("{}:8797", lab.loopback()), format!("{}:8798", lab.loopback()));
    let kubeconfig = data.join("kubeconfig");
    let mut up = Command::new(binary::machinist_binary().unwrap());
    up.args(["up", "--metrics-listen", &metrics, "--api-listen"]);
    up.arg(format!("{}:6443", lab.loopback())).arg("--data").arg(&data);
    up.args(["--server-anonymous", "--server-insecure-listen"]);
    up.arg(format!("{}:22624", lab.loopback()));
    let mut hub = lab.spawn("hub", &up).unwrap();
    wait_for("the hub", || {
        hub.check_alive()?;
        Ok(hub.log().contains("Machinist is up"))
    })
    .unwrap();
    let controller = ["machinist_leading", "machinist_api_requests_total", "mco_machine_count"];
    wait_for_metrics(&mut hub, &metrics, &controller);
    let of_hub = [
        "machinist_hub_requests_total",
        "machinist_hub_request_seconds",
        "machinist_hub_watches",
        "machinist_hub_commit_seconds",
        "machinist_hub_store_file_bytes",
        "machinist_hub_store_writable",
    ];
    wait_for_metrics(&mut hub, &metrics, &of_hub);
    http_get(&format!("{}:22624", lab.loopback()), "/config/worker").unwrap();
    let of_server = ["machinist_server_requests_total", "machinist_server_duration_seconds"];
    wait_for_metrics(&mut hub, &metrics, &of_server);

    let mut join = Command::new(binary::machinist_binary().unwrap());
    fs::create_dir(root.join("etc")).unwrap();
    join.args(["join", "--node-name", "a", "--root"]).arg(&root);
    command::run(join.arg("--kubeconfig").arg(&kubeconfig)).unwrap();
    let mut daemon = Command::new(binary::machinist_binary().unwrap());
    daemon.args(["daemon", "start", "--node-name", "a", "--register", "--listen", &machine]);
    daemon.arg("--root").arg(&root);
    daemon.arg("--kubeconfig").arg(root.join("var/lib/machinist/kubeconfig"));
    let mut daemon = lab.spawn("daemon", &daemon).unwrap();
    let names = ["mcd_state", "mcd_config_drift", "mcd_reboots_failed_total"];
    wait_for_metrics(&mut daemon, &machine, &names);
}
