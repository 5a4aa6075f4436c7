//! The machines: their objects, their watches, and when a change reaches each of them.

use crate::connection::{BenchConnection, BenchConnector};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::stream::{self, TryStreamExt as _};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
/// The annotation that carries the number of a change.
const CHANGE_ANNOTATION: &str = "\"bench/change\":\"";
const JSON: &str = "application/json";
/// How many machines share one config.
const MACHINES_PER_POOL: usize = 500;

/// The changes: when each began and when it reached its machine, in nanoseconds since `zero`.
#[derive(Debug)]
pub(crate) struct ChangeTimes {
    epoch: Instant,
    started: Vec<AtomicU64>,
    observed: Vec<AtomicU64>,
}

impl ChangeTimes {
    pub(crate) fn new(changes: usize) -> Arc<Self> {
        let none = || (0..changes).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { epoch: Instant::now(), started: none(), observed: none() })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn record_start(&self, change: usize) {
        self.started[change].store(self.now(), Ordering::Relaxed);
    }

    fn record_observed(&self, change: usize) {
        if let Some(reached) = self.observed.get(change) {
            reached.store(self.now(), Ordering::Relaxed);
        }
    }

    /// The changes that have not reached their machine yet.
    pub(crate) fn pending(&self, changes: usize) -> Vec<usize> {
        let is_missing = |change: &usize| self.observed[*change].load(Ordering::Relaxed) == 0;
        (0..changes).filter(is_missing).collect()
    }

    /// How long each of the first changes took, in milliseconds, sorted. `None` while one is outstanding.
    pub(crate) fn delays(&self, changes: usize) -> Option<Vec<f64>> {
        let pairs = self.started.iter().zip(&self.observed).take(changes);
        let mut delays = pairs
            .map(|(begun, reached)| {
                let (begun, reached) =
                    (begun.load(Ordering::Relaxed), reached.load(Ordering::Relaxed));
                (reached > 0).then(|| reached.saturating_sub(begun) as f64 / 1e6)
            })
            .collect::<Option<Vec<f64>>>()?;
        delays.sort_by(f64::total_cmp);
        Some(delays)
    }
}

pub(crate) fn node_path(machine: usize) -> String {
    format!("{NODES}/machine-{machine:05}")
}

/// The patch that changes a node.
pub(crate) fn change_patch(number: usize) -> Bytes {
    json!({"metadata": {"annotations": {"bench/change": number.to_string()}}}).to_string().into()
}

/// A node of realistic size.
fn node(machine: usize) -> Value {
    let name = format!("machine-{machine:05}");
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": format!("KubeletHas{kind}"),
            "message": format!("kubelet says that {kind} is {status}"),
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let images: Vec<Value> = (0..8)
        .map(|image| {
            json!({
                "names": [format!("registry.example.com/library/image-{image}@sha256:{:064}", image)],
                "sizeBytes": 123_456_789,
            })
        })
        .collect();
    let config = format!("rendered-{:02}", machine / MACHINES_PER_POOL);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", "node-role.kubernetes.io/worker": "",
            },
            "annotations": {
                "machineconfiguration.openshift.io/currentConfig": config,
                "machineconfiguration.openshift.io/desiredConfig": config,
                "machineconfiguration.openshift.io/state": "Done",
            },
        },
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "250"},
            "allocatable": {"cpu": "7500m", "memory": "30Gi", "pods": "250"},
            "conditions": [
                condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False"), condition("Ready", "True"),
            ],
            "images": images,
            "nodeInfo": {
                "architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "cri-o://1.34",
                "kernelVersion": "6.1.0", "kubeProxyVersion": "", "kubeletVersion": "v1.34.1",
                "machineID": "m", "operatingSystem": "linux", "osImage": "Linux", "systemUUID": "u",
            },
        },
    })
}

fn config(pool: usize) -> Value {
    let files: Vec<Value> = (0..20)
        .map(|file| json!({"path": format!("/etc/file-{file}"), "contents": {"source": format!("data:,{}", "x".repeat(500))}}))
        .collect();
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": format!("rendered-{pool:02}")},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}},
    })
}

/// Creates all nodes and configs.
pub(crate) async fn create(connections: &[BenchConnection], machines: usize) -> Result<()> {
    let objects = (0..machines.div_ceil(MACHINES_PER_POOL)).map(|pool| (CONFIGS, config(pool)));
    let objects = objects.chain((0..machines).map(|machine| (NODES, node(machine))));
    stream::iter(objects.enumerate().map(Ok))
        .try_for_each_concurrent(64, |(index, (path, object))| {
            let connection = &connections[index % connections.len()];
            async move { connection.request("POST", path, JSON, object.to_string()).await.map(drop) }
        })
        .await
}

/// Connects all machines, each with its two watches, from the current resource version.
pub(crate) async fn connect(
    connector: &BenchConnector,
    machines: usize,
    change_times: &Arc<ChangeTimes>,
) -> Result<()> {
    stream::iter((0..machines).map(Ok))
        .try_for_each_concurrent(16, |machine| connect_one(connector, machine, change_times))
        .await
}

async fn connect_one(
    connector: &BenchConnector,
    machine: usize,
    change_times: &Arc<ChangeTimes>,
) -> Result<()> {
    let connection = connector.connect().await.with_context(|| format!("machine {machine}"))?;
    for (path, name) in [
        (NODES, format!("machine-{machine:05}")),
        (CONFIGS, format!("rendered-{:02}", machine / MACHINES_PER_POOL)),
    ] {
        let path = format!(
            "{path}?watch=true&resourceVersion=0&timeoutSeconds=3600&fieldSelector=metadata.name%3D{name}"
        );
        let mut body = connection.send("GET", &path, JSON, Bytes::new()).await?.into_body();
        // The watch starts with the existing object, which proves that it runs.
        let first = body.frame().await.context("the watch has ended")??;
        let added = |data: &Bytes| data.starts_with(b"{\"type\":\"ADDED\"");
        ensure!(first.data_ref().is_some_and(added), "the watch began with {first:?}");
        let (connection, change_times) = (connection.clone(), Arc::clone(change_times));
        tokio::spawn(async move {
            let _open = connection; // the connection must outlive the watch
            while let Some(Ok(frame)) = body.frame().await {
                if let Some(change) = frame.data_ref().and_then(|data| change_number(data)) {
                    change_times.record_observed(change);
                }
            }
        });
    }
    Ok(())
}

/// The number of the change in an event. The mark is near the start of an object, so it is never cut off.
fn change_number(data: &[u8]) -> Option<usize> {
    let start = data
        .windows(CHANGE_ANNOTATION.len())
        .rposition(|window| window == CHANGE_ANNOTATION.as_bytes())?;
    let text = std::str::from_utf8(&data[start + CHANGE_ANNOTATION.len()..]).ok()?;
    text.split('"').next()?.parse().ok()
}
