//! The controller with thousands of machines. Measurements need an optimised binary and an idle host, so these run with
//! `make bench`; a small one runs with every test.

use anyhow::{Result, ensure};
use machinist_e2e::fleet::{FleetSpec, MachineBehaviour};
use machinist_e2e::rollout_checker::{LogEntry, ReactionTime, WatchLog, check};
use machinist_e2e::{Cluster, Fleet, binary, measurements, wait_with_timeout};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

const GROUP: &str = "machineconfiguration.openshift.io";

/// The costs of a rollout.
#[derive(Debug)]
struct RolloutCost {
    took: Duration,
    requests_per_machine: f64,
    memory: u64,
    processor: Duration,
    last_done_to_updated: Duration,
}

fn manifest(kind: &str, name: &str, spec: &Value) -> String {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {"name": name, "labels": {format!("{GROUP}/role"): "worker"}},
        "spec": spec,
    })
    .to_string()
}

fn config_of(cluster: &Cluster, before: &str) -> Result<String> {
    let name =
        cluster.kubectl(&["get", "mcp", "worker", "-o", "jsonpath={.spec.configuration.name}"])?;
    ensure!(!name.is_empty() && name != before, "no new config yet");
    Ok(name)
}

/// Rolls one change out to this many machines, a tenth of them at a time.
fn rollout(machines: usize) -> RolloutCost {
    let cluster = Cluster::start().unwrap();
    cluster.install_published_crds().unwrap();
    let pool = json!({
        "maxUnavailable": "10%",
        "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
        "machineConfigSelector": {"matchLabels": {format!("{GROUP}/role"): "worker"}},
    });
    cluster.apply(&manifest("MachineConfigPool", "worker", &pool)).unwrap();
    let arguments = |n: u32| json!({"kernelArguments": [format!("round={n}")]});
    cluster.apply(&manifest("MachineConfig", "00-worker", &arguments(0))).unwrap();
    let port = format!("{}:8797", cluster.lab().loopback());
    let mut controller = Command::new(binary::machinist_binary().unwrap());
    controller.args(["controller", "--metrics-listen-address", &port]);
    controller.arg("--kubeconfig").arg(cluster.kubeconfig());
    let controller = cluster.lab().spawn("controller", &controller).unwrap();
    let mut config = String::new();
    wait_with_timeout(Duration::from_secs(60), "the pool to be rendered", || {
        config = config_of(&cluster, "").unwrap_or_default();
        Ok(!config.is_empty())
    })
    .unwrap();
    let behaviour =
        MachineBehaviour { drain: true, reboot: Some(0..=20), ..MachineBehaviour::default() };
    let fleet_spec =
        FleetSpec { machines, config: config.clone(), behaviour, ..FleetSpec::default() };
    let fleet = Fleet::start(cluster.client(), fleet_spec).unwrap();
    let updated = |count: usize, config: &str| {
        wait_with_timeout(Duration::from_secs(900), "the pool to be updated", || {
            let pool = cluster.kubectl(&["get", "mcp", "worker", "-o", "json"])?;
            let pool: Value = serde_json::from_str(&pool)?;
            Ok(pool["status"]["updatedMachineCount"] == count
                && pool["status"]["configuration"]["name"] == config)
        })
        .unwrap();
    };
    updated(machines, &config);
    let log = WatchLog::start(&cluster.client()).unwrap();
    let (requests, processor) = (requests(&port), cpu(controller.id()));
    let start = Instant::now();
    cluster.apply(&manifest("MachineConfig", "00-worker", &arguments(1))).unwrap();
    let mut next = String::new();
    wait_with_timeout(Duration::from_secs(60), "a new config", || {
        next = config_of(&cluster, &config).unwrap_or_default();
        Ok(!next.is_empty())
    })
    .unwrap();
    updated(machines, &next);
    let took = start.elapsed();
    assert_eq!(fleet.progress(&next).unwrap(), (machines, 0));
    let requests = self::requests(&port) - requests;
    let processor = cpu(controller.id()) - processor;
    let memory = controller.memory();
    let log = log.stop().unwrap();
    assert_eq!(check(&log, ReactionTime::default()), []);
    let last_done_to_updated = done_to_updated(&log.entries, &next);
    RolloutCost {
        took,
        requests_per_machine: requests as f64 / machines as f64,
        memory,
        processor,
        last_done_to_updated,
    }
}

/// From the last machine's Done to the pool's Updated.
fn done_to_updated(entries: &[LogEntry], config: &str) -> Duration {
    let annotation = |entry: &LogEntry, key: &str| {
        entry.object["metadata"]["annotations"][format!("{GROUP}/{key}")].clone()
    };
    let done = |entry: &&LogEntry| {
        entry.kind == "Node"
            && annotation(entry, "currentConfig") == config
            && annotation(entry, "state") == "Done"
    };
    let is_updated = |entry: &&LogEntry| {
        entry.kind == "MachineConfigPool"
            && entry.object["status"]["configuration"]["name"] == config
    };
    // Each machine reports Done once; later changes, such as taints, do not count.
    let mut first = std::collections::BTreeMap::new();
    for entry in entries.iter().filter(done) {
        first.entry(entry.name.clone()).or_insert(entry.at);
    }
    let last = first.values().max().copied().unwrap_or_default();
    let updated = entries.iter().find(is_updated).map_or(u64::MAX, |entry| entry.at);
    Duration::from_millis(updated.saturating_sub(last))
}

fn requests(address: &str) -> u64 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find(|line| line.starts_with("machinist_api_requests_total "));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap()
}

fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
    let ticks = |n: usize| fields[n].parse::<u64>().unwrap();
    Duration::from_millis((ticks(12) + ticks(13)) * 10)
}

fn show(machines: usize, cost: &RolloutCost) {
    let summary = format!(
        "{machines} machines in {:.1?}; {:.1} requests a machine; controller {} MB, {:.1?} of processor; \
         last Done to Updated {:.0?}",
        cost.took,
        cost.requests_per_machine,
        cost.memory / 1024 / 1024,
        cost.processor,
        cost.last_done_to_updated,
    );
    println!("{summary}");
    measurements::record(&format!("rollout-of-{machines}"), summary).unwrap();
}

#[test]
fn a_hundred_machines_stay_within_the_request_budget() {
    let cost = rollout(100);
    show(100, &cost);
    assert!(cost.requests_per_machine <= 14.0, "{cost:?}");
    assert!(cost.last_done_to_updated <= Duration::from_secs(3), "{cost:?}");
}

/// The budget: at most 300 MB and 12 requests per machine, Updated within a second of the last Done, linear growth.
#[test]
#[ignore = "benchmark: make bench"]
fn five_thousand_machines_stay_within_the_budget() {
    let few = rollout(500);
    show(500, &few);
    let many = rollout(5000);
    show(5000, &many);
    assert!(many.memory <= 300 * 1024 * 1024, "{many:?}");
    assert!(many.requests_per_machine <= 12.0, "{many:?}");
    assert!(many.last_done_to_updated <= Duration::from_secs(1), "{many:?}");
    let ratio = |few: Duration, many: Duration| many.as_secs_f64() / few.as_secs_f64();
    let (time, processor) = (ratio(few.took, many.took), ratio(few.processor, many.processor));
    println!(
        "for 10 times the machines: {time:.1} times the time, {processor:.1} times the processor"
    );
    assert!(time <= 15.0, "it took {time:.1} times as long");
}
