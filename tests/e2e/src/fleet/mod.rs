//! Thousands of simulated machines that speak the node protocol.
//!
//! Each machine is a `Node` object and a small state machine: it sees the annotations that the controller writes and
//! writes its own, after delays and with failures, crashes and lost responses that follow from a seed. What happens to
//! a machine is the same in every run with the same seed; when it happens depends on the API server.

mod behaviour;
mod machine;
mod runner;

pub use behaviour::{AttemptOutcome, MachineBehaviour};
pub use machine::{MachineEffect, SimulatedMachine, UpdatePhase};

use crate::runtime;
use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The prefix of the protocol's annotations.
pub const ANNOTATION_PREFIX: &str = "machineconfiguration.openshift.io";

/// How many requests the fleet has in flight at a time.
const MAX_CONCURRENT_REQUESTS: usize = 64;

/// A running fleet. It stops when its handle is dropped; its nodes stay.
pub struct Fleet {
    client: kube::Client,
    names: Vec<String>,
    updates: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("machines", &self.names.len()).finish_non_exhaustive()
    }
}

/// The description of a fleet.
#[derive(Debug, Clone)]
pub struct FleetSpec {
    /// The number of machines.
    pub machines: usize,
    /// The prefix of their names; a number follows.
    pub prefix: String,
    /// Their role label, `node-role.kubernetes.io/ROLE`.
    pub role: String,
    /// The config that they start with.
    pub config: String,
    /// The seed that decides everything that happens to them.
    pub seed: u64,
    /// What may happen to them.
    pub behaviour: MachineBehaviour,
    /// Whether each machine has its own watch, as real machines do; otherwise one watch serves them all.
    pub watch_per_machine: bool,
}

impl Default for FleetSpec {
    fn default() -> Self {
        Self {
            machines: 10,
            prefix: "sim".to_owned(),
            role: "worker".to_owned(),
            config: "rendered-worker-0".to_owned(),
            seed: 1,
            behaviour: MachineBehaviour::default(),
            watch_per_machine: false,
        }
    }
}

impl FleetSpec {
    /// The name of the n-th machine.
    pub fn machine_name(&self, n: usize) -> String {
        format!("{}-{n:05}", self.prefix)
    }

    /// The object of the n-th machine in its initial state.
    pub fn node_object(&self, n: usize) -> Value {
        let role = format!("node-role.kubernetes.io/{}", self.role);
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.machine_name(n),
                "labels": {role: "", "kubernetes.io/os": "linux", runner::FLEET_LABEL: self.prefix},
                "annotations": {
                    format!("{ANNOTATION_PREFIX}/currentConfig"): self.config,
                    format!("{ANNOTATION_PREFIX}/desiredConfig"): self.config,
                    format!("{ANNOTATION_PREFIX}/state"): "Done",
                    format!("{ANNOTATION_PREFIX}/reason"): "",
                },
            },
            "status": {"conditions": [ready_condition(true)]},
        })
    }
}

/// The Ready condition of a node.
fn ready_condition(is: bool) -> Value {
    let status = if is { "True" } else { "False" };
    json!({"type": "Ready", "status": status, "reason": "Simulated", "message": ""})
}

impl Fleet {
    /// Creates the nodes and starts the machines.
    pub fn start(client: kube::Client, spec: FleetSpec) -> Result<Self> {
        let names: Vec<_> = (0..spec.machines).map(|n| spec.machine_name(n)).collect();
        let updates = Arc::new(AtomicU64::new(0));
        let task = crate::block_on(async {
            create_nodes(&client, &spec).await?;
            let runner =
                runner::FleetRunner::new(client.clone(), spec, Arc::clone(&updates)).await?;
            anyhow::Ok(runtime().spawn(runner.run()))
        })?;
        Ok(Self { client, names, updates, task })
    }

    /// How many writes the machines have made so far.
    pub fn updates(&self) -> u64 {
        self.updates.load(Ordering::Relaxed)
    }

    /// The names of the machines.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Points every machine at a config at once, as a controller without limits would. Returns the time it took.
    pub fn target_all(&self, config: &str) -> Result<Duration> {
        let start = Instant::now();
        let api = Api::<Node>::all(self.client.clone());
        let patch = json!({"metadata": {"annotations": {format!("{ANNOTATION_PREFIX}/desiredConfig"): config}}});
        crate::block_on(
            stream::iter(&self.names)
                .map(|name| {
                    let (api, patch) = (api.clone(), Patch::Merge(patch.clone()));
                    async move { api.patch_metadata(name, &PatchParams::default(), &patch).await }
                })
                .buffer_unordered(MAX_CONCURRENT_REQUESTS)
                .try_for_each(|_| async { Ok(()) }),
        )
        .context("target the fleet")?;
        Ok(start.elapsed())
    }

    /// How many machines have reached a config, and how many report a failure.
    pub fn progress(&self, config: &str) -> Result<(usize, usize)> {
        let api = Api::<Node>::all(self.client.clone());
        let list = crate::block_on(api.list_metadata(&kube::api::ListParams::default()))?;
        let says = |annotations: &std::collections::BTreeMap<String, String>, key, value: &str| {
            annotations
                .get(&format!("{ANNOTATION_PREFIX}/{key}"))
                .is_some_and(|found| found == value)
        };
        let (mut done, mut degraded) = (0, 0);
        for node in list.items {
            let annotations = node.metadata.annotations.unwrap_or_default();
            let is_done =
                says(&annotations, "currentConfig", config) && says(&annotations, "state", "Done");
            done += usize::from(is_done);
            degraded += usize::from(says(&annotations, "state", "Degraded"));
        }
        Ok((done, degraded))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn create_nodes(client: &kube::Client, spec: &FleetSpec) -> Result<()> {
    let api = Api::<Node>::all(client.clone());
    stream::iter(0..spec.machines)
        .map(|n| {
            let (api, node) = (api.clone(), spec.node_object(n));
            async move {
                let status = node["status"].clone();
                let node: Node = serde_json::from_value(node)?;
                api.create(&PostParams::default(), &node).await?;
                let name = node.metadata.name.as_deref().unwrap_or_default();
                let patch = Patch::Merge(json!({"status": status}));
                api.patch_status(name, &PatchParams::default(), &patch).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(MAX_CONCURRENT_REQUESTS)
        .try_for_each(|()| async { Ok(()) })
        .await
        .context("make the nodes of the fleet")
}

/// Memory in use by this process, which holds the fleet, in bytes.
pub fn process_memory() -> u64 {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    crate::lab::resident_memory(&[own])
}
