//! The drain loop: machines request a drain before they change, and an uncordon afterwards.
//!
//! Each request is a task of its own, so that one machine whose pods do not leave delays no other. `core::drain` decides what
//! a request means and when to retry; `evict` performs one attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use machinist_core::api::names::annotation;
use machinist_core::drain::{
    CORDON_DELAYS, DrainBlocker, DrainError, DrainProgress, DrainRequest, after_failure,
    cordoned_again_message, drain_report, pending_request,
};
use machinist_core::rollout::guarded_patch::PatchPreconditions;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::context::{Context, WriteError};
use super::debounce::Debounce;
use super::event_component;
use super::evict;
use super::machine_config_node as machine;

/// The task under which failed writes are reported.
const TASK: &str = "carry out the drain request";

/// Runs for ever.
pub(super) async fn run(context: Context) {
    let mut debounce = Debounce::new(
        "drain",
        &context.liveness,
        Duration::from_millis(10),
        Duration::from_millis(50),
    );
    debounce.watch(context.caches.nodes.subscribe());
    context.caches.wait_until_ready().await;
    let mut queue = DrainQueue {
        context: &context,
        in_progress: BTreeSet::new(),
        invalid_requests: BTreeMap::new(),
        tasks: JoinSet::new(),
    };
    queue.enqueue_all();
    loop {
        tokio::select! {
            () = debounce.next(None) => queue.enqueue_all(),
            Some(done) = queue.tasks.join_next() => {
                // The machine may have a new request already. Only this machine is checked: thousands may end at once.
                if let Ok(name) = done {
                    queue.in_progress.remove(&name);
                    queue.enqueue_by_name(&name);
                }
            }
        }
    }
}

/// The requests in progress.
struct DrainQueue<'a> {
    context: &'a Context,
    in_progress: BTreeSet<String>,
    /// Invalid requests by machine, to report each once.
    invalid_requests: BTreeMap<String, DrainError>,
    tasks: JoinSet<String>,
}

impl DrainQueue<'_> {
    fn enqueue_all(&mut self) {
        let nodes = self.context.caches.nodes.all();
        for node in &nodes {
            self.enqueue(node);
        }
    }

    fn enqueue_by_name(&mut self, name: &str) {
        if let Some(node) = self.context.caches.nodes.get(name) {
            self.enqueue(&node);
        }
    }

    /// Starts a task for a machine that has a request.
    fn enqueue(&mut self, node: &Arc<Node>) {
        let name = node.name_any();
        let request = pending_request(node);
        if request.is_ok() {
            self.invalid_requests.remove(&name);
        }
        match request {
            Ok(DrainRequest::None) => {}
            Ok(_) => {
                if self.in_progress.insert(name.clone()) {
                    let context = self.context.clone();
                    let config = node.annotations().get(annotation::DESIRED_CONFIG);
                    let config = config.map(String::as_str);
                    let span = tracing::info_span!("drain", node = name, config);
                    let task = async move {
                        process_node(&context, &name).await;
                        name
                    };
                    self.tasks.spawn(task.instrument(span));
                }
            }
            Err(error) if self.invalid_requests.get(&name) == Some(&error) => {}
            Err(error) => {
                let text = error.to_string();
                let events = &self.context.events;
                events.report_event(
                    event_component::NODE,
                    node.as_ref(),
                    true,
                    "DrainRequest",
                    text,
                );
                self.invalid_requests.insert(name, error);
            }
        }
    }
}

/// Carries out the requests of one machine until it has none.
async fn process_node(context: &Context, name: &str) {
    let mut failures = 0usize;
    loop {
        let Some(node) = context.caches.nodes.get(name) else {
            context.metrics.set_drain_error(name, None);
            return;
        };
        let result = match pending_request(&node) {
            Ok(DrainRequest::Drain { value }) => {
                let drained = drain(context, &node, &value).await;
                context.set_drain_blockers(name, &[]);
                drained
            }
            Ok(DrainRequest::Uncordon { value }) => uncordon(context, &node, &value).await,
            Ok(DrainRequest::None) | Err(_) => return,
        };
        match result {
            Ok(()) => {
                failures = 0;
                context.write_succeeded(TASK, node.as_ref());
            }
            Err(WriteError::NotLeading) => return,
            // Our cache was stale; the watch updates it.
            Err(error) if error.is_stale() => node_changed(context, &node).await,
            Err(error) => {
                context.write_failed(TASK, event_component::NODE, node.as_ref(), &error);
                let pause = CORDON_DELAYS[failures.min(CORDON_DELAYS.len() - 1)];
                failures += 1;
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = node_changed(context, &node) => {}
                }
            }
        }
    }
}

/// Waits until a machine has changed or is gone.
async fn node_changed(context: &Context, node: &Arc<Node>) {
    let name = node.name_any();
    let mut changes = context.caches.nodes.subscribe();
    let is_same = || {
        let now = context.caches.nodes.get(&name);
        now.is_some_and(|now| now.resource_version() == node.resource_version())
    };
    while is_same() {
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn uncordon(context: &Context, node: &Arc<Node>, value: &str) -> Result<(), WriteError> {
    let annotations = json!({
        annotation::LAST_APPLIED_DRAIN: value,
        annotation::machinist::DRAIN_STARTED: Value::Null,
    });
    match patch_unschedulable(context, node, Some(false), annotations).await {
        Ok(node) => {
            machine::write_status(context, &node, &drain_report(DrainProgress::Uncordoned, &node))
                .await;
            context.metrics.set_drain_error(&node.name_any(), None);
            Ok(())
        }
        Err(error) => {
            if !error.is_stale() {
                let error = error.to_string();
                let step = DrainProgress::UncordonFailed { error: &error };
                machine::write_status(context, node, &drain_report(step, node)).await;
            }
            Err(error)
        }
    }
}

async fn drain(context: &Context, node: &Arc<Node>, value: &str) -> Result<(), WriteError> {
    // Without pods a cordoned machine is drained.
    if !context.has_pods {
        let node = patch_unschedulable(
            context,
            node,
            Some(true),
            json!({annotation::LAST_APPLIED_DRAIN: value}),
        )
        .await?;
        machine::write_status(context, &node, &drain_report(DrainProgress::Drained, &node)).await;
        return Ok(());
    }
    let node = cordon(context, node).await?;
    machine::write_status(context, &node, &drain_report(DrainProgress::Draining, &node)).await;
    let mut blockers = Vec::new();
    loop {
        match evict::attempt_drain(
            context,
            &node,
            &mut blockers,
            request_withdrawn(context, &node, value),
        )
        .await
        {
            evict::EvictionOutcome::Drained => break,
            evict::EvictionOutcome::Cancelled => return Ok(()),
            evict::EvictionOutcome::Failed(error) => {
                let pause = report_failure(context, &node, &error, &blockers).await;
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = request_withdrawn(context, &node, value) => return Ok(()),
                }
            }
        }
    }
    context.metrics.set_drain_error(&node.name_any(), None);
    // If somebody has uncordoned it, pods may be back, and the drain starts again.
    let Some(now) = context.caches.nodes.get(&node.name_any()) else { return Ok(()) };
    if now.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true) {
        return Ok(());
    }
    let done =
        patch_unschedulable(context, &now, None, json!({annotation::LAST_APPLIED_DRAIN: value}))
            .await?;
    machine::write_status(context, &done, &drain_report(DrainProgress::Drained, &done)).await;
    Ok(())
}

/// Cordons a machine, and records on it when the drain started.
async fn cordon(context: &Context, node: &Arc<Node>) -> Result<Arc<Node>, WriteError> {
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    if is_cordoned && node.annotations().contains_key(annotation::machinist::DRAIN_STARTED) {
        return Ok(Arc::clone(node));
    }
    if !is_cordoned && node.annotations().contains_key(annotation::machinist::DRAIN_STARTED) {
        // Without an answer, whoever uncordoned it would only see it cordoned again.
        let message = cordoned_again_message(node);
        let events = &context.events;
        events.report_event(event_component::NODE, node.as_ref(), true, "CordonedAgain", message);
    }
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    match patch_unschedulable(
        context,
        node,
        Some(true),
        json!({annotation::machinist::DRAIN_STARTED: now}),
    )
    .await
    {
        Ok(node) => Ok(node),
        Err(error) => {
            if !error.is_stale() {
                let error = error.to_string();
                let step = DrainProgress::CordonFailed { error: &error };
                machine::write_status(context, node, &drain_report(step, node)).await;
            }
            Err(error)
        }
    }
}

/// Ends when the drain is no longer wanted: the machine has another request, somebody uncordoned it, or it is gone.
async fn request_withdrawn(context: &Context, node: &Arc<Node>, value: &str) {
    let name = node.name_any();
    let mut changes = context.caches.nodes.subscribe();
    let is_wanted = || {
        context.caches.nodes.get(&name).is_some_and(|node| {
            let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
            is_cordoned
                && pending_request(&node) == Ok(DrainRequest::Drain { value: value.to_owned() })
        })
    };
    while is_wanted() {
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Reports a failed attempt in the MachineConfigNode, in metrics and in events. Returns how long to wait for the next one.
async fn report_failure(
    context: &Context,
    node: &Arc<Node>,
    error: &str,
    blockers: &[DrainBlocker],
) -> Duration {
    let name = node.name_any();
    let now = Time(Timestamp::now());
    let sentences: Vec<String> = blockers.iter().map(|blocker| blocker.message_at(&now)).collect();
    let step = DrainProgress::DrainFailed { error, blockers: &sentences };
    machine::write_status(context, node, &drain_report(step, node)).await;
    let started = node.annotations().get(annotation::machinist::DRAIN_STARTED);
    let started = started.and_then(|text| text.parse().ok()).map_or(now.clone(), Time);
    let retry = after_failure(&name, error, &started, &now);
    context.metrics.set_drain_error(&name, retry.alert.then_some(1));
    for warning in retry.warnings {
        context.events.report_event(
            event_component::NODE,
            node.as_ref(),
            true,
            warning.reason,
            warning.message,
        );
    }
    retry.after
}

/// Cordons or uncordons and writes annotations, in one request, and only if the machine's request is still the same.
async fn patch_unschedulable(
    context: &Context,
    node: &Arc<Node>,
    unschedulable: Option<bool>,
    annotations: Value,
) -> Result<Arc<Node>, WriteError> {
    let mut patch = json!({"metadata": {"annotations": annotations}});
    if let Some(unschedulable) = unschedulable {
        patch["spec"] = json!({"unschedulable": unschedulable});
    }
    let preconditions =
        PatchPreconditions { annotations: &[annotation::DESIRED_DRAIN], labels: false };
    Ok(Arc::new(context.patch_node(node, &patch, preconditions).await?))
}
