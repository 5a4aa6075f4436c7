//! Connects the simulated machines to an API server: one watch for all, a bounded number of writes in flight.

use super::machine::{MachineEffect, SimulatedMachine};
use super::{ANNOTATION_PREFIX, FleetSpec, MAX_CONCURRENT_REQUESTS, ready_condition};
use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::sleep;

/// The label that selects a fleet's nodes.
pub(super) const FLEET_LABEL: &str = "testkit.machinist.dev/fleet";

/// What a machine receives.
enum FleetEvent {
    NodeChanged(String, BTreeMap<String, String>),
    Timer(String, u32),
}

/// All machines of a fleet and their connection to the API server.
pub(super) struct FleetRunner {
    api: Api<Node>,
    spec: FleetSpec,
    machines: HashMap<String, SimulatedMachine>,
    version: String,
    sender: mpsc::UnboundedSender<FleetEvent>,
    receiver: mpsc::UnboundedReceiver<FleetEvent>,
    permits: Arc<Semaphore>,
    updates: Arc<AtomicU64>,
}

impl FleetRunner {
    pub(super) async fn new(
        client: kube::Client,
        spec: FleetSpec,
        updates: Arc<AtomicU64>,
    ) -> Result<Self> {
        let api = Api::<Node>::all(client);
        let (sender, receiver) = mpsc::unbounded_channel();
        let list = api.list_metadata(&selector(&spec)).await.context("list the fleet")?;
        for node in list.items {
            send_node(&sender, node);
        }
        let version = list.metadata.resource_version.unwrap_or_default();
        let machine =
            |n| (spec.machine_name(n), SimulatedMachine::new(&spec.machine_name(n), spec.seed));
        let machines = (0..spec.machines).map(machine).collect();
        let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_REQUESTS));
        Ok(Self { api, spec, machines, version, sender, receiver, permits, updates })
    }

    /// Runs until it is aborted.
    pub(super) async fn run(mut self) {
        let mut watches = tokio::task::JoinSet::new();
        for what in watch_params(&self.spec) {
            let (api, version) = (self.api.clone(), self.version.clone());
            watches.spawn(watch(api, what, version, self.sender.clone()));
        }
        while let Some(event) = self.receiver.recv().await {
            let (name, effects) = match event {
                FleetEvent::NodeChanged(name, annotations) => {
                    let Some(machine) = self.machines.get_mut(&name) else { continue };
                    let effects = machine.observe(&self.spec.behaviour, &annotations);
                    (name, effects)
                }
                FleetEvent::Timer(name, timer_id) => {
                    let Some(machine) = self.machines.get_mut(&name) else { continue };
                    let effects = machine.timer_fired(&self.spec.behaviour, timer_id);
                    (name, effects)
                }
            };
            if !effects.is_empty() {
                self.perform(name, effects);
            }
        }
    }

    /// Performs the effects of one machine in order. The wake starts after the writes have been accepted.
    fn perform(&self, name: String, effects: Vec<MachineEffect>) {
        let Some(machine) = self.machines.get(&name) else { return };
        let (timer_id, outcome) = (machine.timer_id(), machine.outcome(&self.spec.behaviour));
        let (api, sender) = (self.api.clone(), self.sender.clone());
        let (permits, updates) = (Arc::clone(&self.permits), Arc::clone(&self.updates));
        tokio::spawn(async move {
            for effect in effects {
                match effect {
                    MachineEffect::Annotate(says) if says.is_empty() => {}
                    MachineEffect::Annotate(says) => {
                        let patch = annotations(&says);
                        // A machine that lost the response sends the same write again.
                        for _ in 0..=u8::from(outcome.loses_response) {
                            write(&api, &permits, &name, false, &patch).await;
                            updates.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    MachineEffect::Ready(is) => {
                        let patch = json!({"status": {"conditions": [ready_condition(is)]}});
                        write(&api, &permits, &name, true, &patch).await;
                        updates.fetch_add(1, Ordering::Relaxed);
                    }
                    MachineEffect::SetTimer(after) => {
                        sleep(after).await;
                        // The fleet may have stopped.
                        let _ = sender.send(FleetEvent::Timer(name.clone(), timer_id));
                    }
                }
            }
        });
    }
}

/// One list for all machines, or one for each.
fn watch_params(spec: &FleetSpec) -> Vec<ListParams> {
    if !spec.watch_per_machine {
        return vec![selector(spec)];
    }
    let one = |n| ListParams::default().fields(&format!("metadata.name={}", spec.machine_name(n)));
    (0..spec.machines).map(one).collect()
}

fn selector(spec: &FleetSpec) -> ListParams {
    ListParams::default().labels(&format!("{FLEET_LABEL}={}", spec.prefix))
}

fn annotations(says: &[(&'static str, String)]) -> Value {
    let pair = |(key, value): &(&str, String)| match (key.contains('/'), value.as_str()) {
        (false, value) => (format!("{ANNOTATION_PREFIX}/{key}"), json!(value)),
        (true, "") => ((*key).to_owned(), Value::Null),
        (true, value) => ((*key).to_owned(), json!(value)),
    };
    json!({"metadata": {"annotations": says.iter().map(pair).collect::<Map<_, _>>()}})
}

fn send_node(sender: &mpsc::UnboundedSender<FleetEvent>, node: PartialObjectMeta<Node>) {
    let (name, annotations) = (node.metadata.name, node.metadata.annotations);
    if let Some(name) = name {
        // The fleet may have stopped.
        let _ = sender.send(FleetEvent::NodeChanged(name, annotations.unwrap_or_default()));
    }
}

/// Retries a write until it succeeds: a machine keeps trying while the API server is down.
async fn write(api: &Api<Node>, permits: &Semaphore, name: &str, status: bool, patch: &Value) {
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = permits.acquire().await else { return };
        let result = if status {
            api.patch_status(name, &params, &patch).await.map(drop)
        } else {
            api.patch_metadata(name, &params, &patch).await.map(drop)
        };
        drop(permit);
        match result {
            Ok(()) => return,
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Follows the fleet's nodes. Lists again when the API server has compacted the last seen version.
async fn watch(
    api: Api<Node>,
    what: ListParams,
    mut version: String,
    sender: mpsc::UnboundedSender<FleetEvent>,
) {
    let mut params = WatchParams::default().timeout(280);
    params.label_selector.clone_from(&what.label_selector);
    params.field_selector.clone_from(&what.field_selector);
    loop {
        if version.is_empty() {
            match api.list_metadata(&what).await {
                Ok(list) => {
                    version = list.metadata.resource_version.unwrap_or_default();
                    list.items.into_iter().for_each(|node| send_node(&sender, node));
                }
                Err(_) => {
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            }
        }
        let Ok(stream) = api.watch_metadata(&params, &version).await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.next().await {
            match event {
                Ok(WatchEvent::Added(node) | WatchEvent::Modified(node)) => {
                    version = node.metadata.resource_version.clone().unwrap_or(version);
                    send_node(&sender, node);
                }
                Ok(WatchEvent::Bookmark(mark)) => version = mark.metadata.resource_version,
                Ok(WatchEvent::Deleted(_)) => {}
                Ok(WatchEvent::Error(_)) => {
                    version.clear();
                    break;
                }
                Err(_) => break,
            }
        }
    }
}
