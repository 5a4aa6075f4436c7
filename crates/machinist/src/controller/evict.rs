//! One attempt to drain a machine: evicts its pods and waits until they are gone. Called by the drain loop.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, EvictParams, ListParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use machinist_core::drain::{
    ATTEMPT_TIMEOUT, DaemonSetRef, DrainBlocker, DrainFlags, DrainPlan, EVICTION_RETRY,
    EvictionRefusal, PodRef, blockers, daemon_sets, eviction_refusal, plan_drain,
};
use machinist_core::rollout::pools_of;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::context::{Context, WriteError};
use super::event_component;
use crate::kubernetes::cache::{Cache, strip_managed_fields};

/// How many pods of a machine are evicted at a time.
const MAX_CONCURRENT_EVICTIONS: usize = 8;

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum EvictionOutcome {
    /// No pod is left that has to leave.
    Drained,
    /// The request was withdrawn.
    Cancelled,
    /// Not in time, or not at all.
    Failed(String),
}

/// Makes one attempt. `until` ends when the request is withdrawn. `known` are the pods that have blocked it so far.
pub(super) async fn attempt_drain(
    context: &Context,
    node: &Arc<Node>,
    known: &mut Vec<DrainBlocker>,
    until: impl Future<Output = ()>,
) -> EvictionOutcome {
    tokio::select! {
        outcome = drain_node(context, node, known) => outcome,
        () = until => EvictionOutcome::Cancelled,
    }
}

async fn drain_node(
    context: &Context,
    node: &Arc<Node>,
    known: &mut Vec<DrainBlocker>,
) -> EvictionOutcome {
    let name = node.name_any();
    let mut daemon_sets = DaemonSets { flags: flags_of(context, node), ..DaemonSets::default() };
    let pods = match list_pods(context, &name).await {
        Ok(pods) => pods,
        Err(error) => return EvictionOutcome::Failed(error.to_string()),
    };
    match daemon_sets.plan(context, &pods).await {
        Ok(plan) if plan.is_drained() => {
            known.clear();
            return EvictionOutcome::Drained;
        }
        Ok(plan) if !plan.refused.is_empty() => {
            return refuse(context, node, known, &plan);
        }
        Ok(_) => {}
        Err(error) => return EvictionOutcome::Failed(error.to_string()),
    }
    // Pods have to leave. A watch shows when they have.
    let pods: Cache<Pod> = Cache::default();
    let mut watching = JoinSet::new();
    let api: Api<Pod> = Api::all(context.client.clone());
    let here = watcher::Config::default().fields(&format!("spec.nodeName={name}"));
    watching.spawn(pods.clone().reflect(api, here, trim_pod, context.failures.clone()));
    let deadline = Instant::now() + ATTEMPT_TIMEOUT;
    if timeout_at(deadline, pods.wait_until_ready()).await.is_err() {
        return EvictionOutcome::Failed("the pods of the machine cannot be watched".to_owned());
    }
    evict_until_gone(context, node, known, &pods, &mut daemon_sets, deadline).await
}

/// Evicts pods until all that have to leave are gone.
async fn evict_until_gone(
    context: &Context,
    node: &Arc<Node>,
    known: &mut Vec<DrainBlocker>,
    pods: &Cache<Pod>,
    daemon_sets: &mut DaemonSets,
    deadline: Instant,
) -> EvictionOutcome {
    let mut changes = pods.subscribe();
    let mut next_eviction = Instant::now();
    let mut refused: Vec<(PodRef, Option<String>, String)> = Vec::new();
    loop {
        changes.mark_unchanged();
        let found: Vec<Pod> = pods.all().iter().map(|pod| pod.as_ref().clone()).collect();
        let plan = match daemon_sets.plan(context, &found).await {
            Ok(plan) => plan,
            Err(error) => return EvictionOutcome::Failed(error.to_string()),
        };
        if plan.is_drained() {
            known.clear();
            return EvictionOutcome::Drained;
        }
        if !plan.refused.is_empty() {
            return refuse(context, node, known, &plan);
        }
        if Instant::now() >= next_eviction && !plan.evict.is_empty() {
            next_eviction = Instant::now() + EVICTION_RETRY;
            refused = match evict_all(context, &plan).await {
                Ok(refused) => refused,
                Err(error) => return EvictionOutcome::Failed(error),
            };
            report_blockers(context, node, known, &refused);
        }
        if Instant::now() >= deadline {
            let reason = "it is shutting down and does not end";
            let late = plan.wait.iter().map(|pod| (pod.clone(), None, reason.to_owned()));
            report_blockers(context, node, known, &late.chain(refused).collect::<Vec<_>>());
            return EvictionOutcome::Failed(blockers_message(known));
        }
        let wake = if plan.evict.is_empty() { deadline } else { next_eviction.min(deadline) };
        // Either a change or the time for the next eviction.
        let _ = timeout_at(wake, changes.changed()).await;
    }
}

/// The flags of the machine's pool. A machine without one is drained as before it left its pool.
fn flags_of(context: &Context, node: &Node) -> DrainFlags {
    let pools = context.caches.pools.all();
    let pools = pools_of(node, &pools).unwrap_or_default();
    pools.first().map_or_else(DrainFlags::default, |pool| DrainFlags::of_pool(pool))
}

/// Evicts nothing, as kubectl does, and names the pods that need a flag.
fn refuse(
    context: &Context,
    node: &Arc<Node>,
    known: &mut Vec<DrainBlocker>,
    plan: &DrainPlan,
) -> EvictionOutcome {
    let refused = plan.refused.iter().map(|(pod, why)| (pod.clone(), None, why.to_string()));
    report_blockers(context, node, known, &refused.collect::<Vec<_>>());
    EvictionOutcome::Failed(blockers_message(known))
}

/// Records the pods that block the drain, and reports new ones immediately: MCO's own report comes after an hour.
fn report_blockers(
    context: &Context,
    node: &Arc<Node>,
    known: &mut Vec<DrainBlocker>,
    refused: &[(PodRef, Option<String>, String)],
) {
    let now = Time(Timestamp::now());
    let before = std::mem::take(known);
    *known = blockers(&before, refused.iter().cloned(), &now);
    context.set_drain_blockers(&node.name_any(), known);
    for blocker in known.iter() {
        if !before.iter().any(|old| old.pod == blocker.pod && old.budget == blocker.budget) {
            let text = blocker.message_at(&now);
            context.events.report_event(
                event_component::NODE,
                node.as_ref(),
                true,
                "DrainBlocked",
                text,
            );
        }
    }
}

fn blockers_message(blockers: &[DrainBlocker]) -> String {
    let now = Time(Timestamp::now());
    let sentences: Vec<String> = blockers.iter().map(|blocker| blocker.message_at(&now)).collect();
    if sentences.is_empty() {
        format!("the pods did not leave within {} s", ATTEMPT_TIMEOUT.as_secs())
    } else {
        sentences.join(", ")
    }
}

async fn list_pods(context: &Context, node: &str) -> Result<Vec<Pod>, WriteError> {
    let api: Api<Pod> = Api::all(context.client.clone());
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    Ok(context.write(api.list(&params)).await?.items)
}

/// A drain reads only the metadata and the phase of a pod, and whether it has an `emptyDir`.
fn trim_pod(pod: &mut Pod) {
    strip_managed_fields(pod);
    let volumes = pod.spec.take().and_then(|spec| spec.volumes).unwrap_or_default();
    let local = volumes.into_iter().find(|volume| volume.empty_dir.is_some());
    pod.spec = local.map(|volume| PodSpec { volumes: Some(vec![volume]), ..PodSpec::default() });
}

/// The DaemonSets that have pods on the machine, and whether they exist.
#[derive(Debug, Default)]
struct DaemonSets {
    known: BTreeMap<DaemonSetRef, bool>,
    flags: DrainFlags,
}

impl DaemonSets {
    /// Plans what to do with the pods of a machine.
    async fn plan(&mut self, context: &Context, pods: &[Pod]) -> Result<DrainPlan, WriteError> {
        for daemon_set in daemon_sets(pods) {
            if let Entry::Vacant(unknown) = self.known.entry(daemon_set) {
                let exists = daemon_set_exists(context, unknown.key()).await?;
                unknown.insert(exists);
            }
        }
        let gone = self.known.iter().filter(|(_, exists)| !**exists);
        let gone = gone.map(|(daemon_set, _)| daemon_set.clone()).collect();
        Ok(plan_drain(pods, &gone, self.flags))
    }
}

async fn daemon_set_exists(
    context: &Context,
    daemon_set: &DaemonSetRef,
) -> Result<bool, WriteError> {
    let api: Api<DaemonSet> = Api::namespaced(context.client.clone(), &daemon_set.namespace);
    Ok(context.write(api.get_metadata_opt(&daemon_set.name)).await?.is_some())
}

/// Evicts all pods that have to leave. Returns the refused ones, with the budget that refused them and its message.
async fn evict_all(
    context: &Context,
    plan: &DrainPlan,
) -> Result<Vec<(PodRef, Option<String>, String)>, String> {
    let request = |pod| async move { (pod, evict(context, pod).await) }.boxed();
    let requests: Vec<_> = plan.evict.iter().map(request).collect();
    let mut responses = futures::stream::iter(requests).buffer_unordered(MAX_CONCURRENT_EVICTIONS);
    let mut refused = Vec::new();
    while let Some((pod, result)) = responses.next().await {
        match result {
            Ok(()) => {}
            Err(WriteError::Api(kube::Error::Api(status))) => match eviction_refusal(&status) {
                EvictionRefusal::AlreadyGone | EvictionRefusal::NamespaceTerminating => {}
                EvictionRefusal::Blocked { budget, message } => {
                    refused.push((pod.clone(), budget, message));
                }
                EvictionRefusal::Failed { message } => {
                    return Err(format!(
                        "error when evicting pods/{:?} -n {:?}: {message}",
                        pod.name, pod.namespace
                    ));
                }
            },
            Err(error) => return Err(error.to_string()),
        }
    }
    refused.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(refused)
}

/// Evicts one pod with its own grace period. The UID protects a later pod of the same name.
async fn evict(context: &Context, pod: &PodRef) -> Result<(), WriteError> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &pod.namespace);
    let uid = Some(pod.uid.clone()).filter(|uid| !uid.is_empty());
    let preconditions = uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None });
    let delete_options = Some(DeleteParams { preconditions, ..DeleteParams::default() });
    let params = EvictParams { delete_options, ..EvictParams::default() };
    context.write(api.evict(&pod.name, &params)).await.map(drop)
}
