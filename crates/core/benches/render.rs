//! Time to render a pool of 60 MachineConfigs (165 KB) and one of 600 (1.4 MB). Fails if a budget is
//! exceeded.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a benchmark measures time and prints it"
)]

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::ignition::data_url;
use machinist_core::render::render;
use serde_json::json;

/// A pool of `count` MachineConfigs of about `bytes` each: files, units, a drop-in, arguments; one
/// in five overrides something of an earlier one.
fn pool_of(count: usize, bytes: usize) -> (MachineConfigPool, Vec<MachineConfig>) {
    let role = json!({"machineconfiguration.openshift.io/role": "worker"});
    let pool = serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"},
        "spec": {"machineConfigSelector": {"matchLabels": role}}
    }))
    .unwrap();
    let line = "net.ipv4.conf.all.rp_filter = 1 # kept as it was, for the routers' sake\n";
    let configs = (0..count).map(|index| {
        let target = if index % 5 == 4 { index - 4 } else { index };
        let plain = data_url::encode(line.repeat(bytes / 4 / line.len() / 2).as_bytes());
        let base64 = data_url::encode_base64(line.repeat(bytes / 4 / line.len()).as_bytes());
        let unit = format!("[Unit]\nDescription=number {index}\n\n[Service]\n{}\n[Install]\nWantedBy=multi-user.target\n", "ExecStartPre=/usr/bin/true with some words\n".repeat(bytes / 4 / 44));
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": format!("{index:04}-worker"), "labels": role},
            "spec": {
                "kernelArguments": [format!("argument{index}=1")],
                "config": {
                    "ignition": {"version": "3.4.0"},
                    "storage": {"files": [
                        {"path": format!("/etc/plain/{target}.conf"), "mode": 420, "contents": {"source": plain}},
                        {"path": format!("/etc/base64/{index}.conf"), "mode": 420, "contents": {"source": format!("data:;base64,{base64}")}},
                    ]},
                    "systemd": {"units": [
                        {"name": format!("unit-{target}.service"), "enabled": true, "contents": unit,
                         "dropins": [{"name": format!("10-{index}.conf"), "contents": "[Service]\nEnvironment=A=b\n"}]},
                    ]}
                }
            }
        }))
        .unwrap()
    });
    (pool, configs.collect())
}

/// The best of many runs, which excludes noise from other processes.
fn best_of(runs: usize, mut work: impl FnMut()) -> Duration {
    let timed = (0..runs).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed()
    });
    timed.min().unwrap()
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(30);
    let mut missed = Vec::new();
    let mut costs = Vec::new();
    for (count, bytes, budget) in [(60, 3_060, 5), (600, 2_620, 60)] {
        let (pool, configs) = pool_of(count, bytes);
        let size: usize =
            configs.iter().map(|config| serde_json::to_vec(&config.spec).unwrap().len()).sum();
        let name = format!("render {count} MachineConfigs, {} KB", size / 1000);
        let mut group = criterion.benchmark_group("render");
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(&name, |bencher| {
            bencher.iter(|| render(&pool, &configs, None).unwrap());
        });
        group.finish();
        let best = best_of(20, || drop(render(&pool, &configs, None).unwrap()));
        println!("{name}: {best:?}, budget {budget} ms");
        if best > Duration::from_millis(budget) {
            missed.push(name);
        }
        costs.push(best.as_secs_f64() / f64::from(u32::try_from(size).unwrap()));
    }
    let growth = costs[1] / costs[0];
    println!("cost per byte at 1.4 MB / cost per byte at 165 KB: {growth:.2}");
    if growth > 2.0 {
        missed.push(format!("cost grows {growth:.2} times faster than size"));
    }
    assert!(missed.is_empty(), "over budget: {missed:?}");
    criterion.final_summary();
}
