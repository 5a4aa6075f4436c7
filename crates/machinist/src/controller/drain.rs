//! The drain loop: machines ask to be emptied before they change, and to be filled again after.
//!
//! Each request is a task of its own, so that one machine whose pods do not leave holds up nobody else.

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
    drain_report, pending_request,
};
use machinist_core::rollout::guarded_patch::PatchPreconditions;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::context::{Context, WriteError};
use super::debounce::Debounce;
use super::event_component;
use super::evict;
use super::machine_config_node as machine;

/// Carries out requests for ever.
pub(super) async fn run(shell: Context) {
    let mut turns = Debounce::new(Duration::from_millis(10), Duration::from_millis(50));
    turns.watch(shell.caches.nodes.subscribe());
    shell.caches.wait_until_ready().await;
    let mut desk = DrainQueue {
        shell: &shell,
        in_progress: BTreeSet::new(),
        invalid_requests: BTreeMap::new(),
        tasks: JoinSet::new(),
    };
    desk.enqueue_all();
    loop {
        tokio::select! {
            () = turns.next(None) => desk.enqueue_all(),
            Some(done) = desk.tasks.join_next() => {
                // It may have asked for more while its task was ending. Only this one: thousands may end.
                if let Ok(name) = done {
                    desk.in_progress.remove(&name);
                    desk.enqueue_by_name(&name);
                }
            }
        }
    }
}

/// Who is being served.
struct DrainQueue<'a> {
    shell: &'a Context,
    in_progress: BTreeSet<String>,
    /// Requests that cannot be understood, by machine, to complain of each once.
    invalid_requests: BTreeMap<String, DrainError>,
    tasks: JoinSet<String>,
}

impl DrainQueue<'_> {
    fn enqueue_all(&mut self) {
        let nodes = self.shell.caches.nodes.all();
        for node in &nodes {
            self.enqueue(node);
        }
    }

    fn enqueue_by_name(&mut self, name: &str) {
        if let Some(node) = self.shell.caches.nodes.get(name) {
            self.enqueue(&node);
        }
    }

    /// Begins to serve a machine that asks for something.
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
                    let shell = self.shell.clone();
                    self.tasks.spawn(async move {
                        process_node(&shell, &name).await;
                        name
                    });
                }
            }
            Err(error) if self.invalid_requests.get(&name) == Some(&error) => {}
            Err(error) => {
                let text = error.to_string();
                let events = &self.shell.events;
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

/// Serves one machine until it asks for nothing more.
async fn process_node(shell: &Context, name: &str) {
    let mut failures = 0usize;
    loop {
        let Some(node) = shell.caches.nodes.get(name) else {
            shell.metrics.set_drain_error(name, None);
            return;
        };
        let result = match pending_request(&node) {
            Ok(DrainRequest::Drain { value }) => drain(shell, &node, &value).await,
            Ok(DrainRequest::Uncordon { value }) => uncordon(shell, &node, &value).await,
            Ok(DrainRequest::None) | Err(_) => return,
        };
        match result {
            Ok(()) => failures = 0,
            Err(WriteError::NotLeading) => return,
            // The watch brings what is new.
            Err(error) if error.is_stale() => node_changed(shell, &node).await,
            Err(error) => {
                tracing::warn!(node = name, %error, "cannot serve a drain request");
                let pause = CORDON_DELAYS[failures.min(CORDON_DELAYS.len() - 1)];
                failures += 1;
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = node_changed(shell, &node) => {}
                }
            }
        }
    }
}

/// Waits until a machine is not as it was, or is gone.
async fn node_changed(shell: &Context, node: &Arc<Node>) {
    let name = node.name_any();
    let mut changes = shell.caches.nodes.subscribe();
    let is_same = || {
        let now = shell.caches.nodes.get(&name);
        now.is_some_and(|now| now.resource_version() == node.resource_version())
    };
    while is_same() {
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn uncordon(shell: &Context, node: &Arc<Node>, value: &str) -> Result<(), WriteError> {
    let annotations = json!({
        annotation::LAST_APPLIED_DRAIN: value,
        annotation::machinist::DRAIN_STARTED: Value::Null,
    });
    match patch_unschedulable(shell, node, Some(false), annotations).await {
        Ok(node) => {
            machine::write_status(shell, &node, &drain_report(DrainProgress::Uncordoned, &node))
                .await;
            shell.metrics.set_drain_error(&node.name_any(), None);
            Ok(())
        }
        Err(error) => {
            if !error.is_stale() {
                let error = error.to_string();
                let step = DrainProgress::UncordonFailed { error: &error };
                machine::write_status(shell, node, &drain_report(step, node)).await;
            }
            Err(error)
        }
    }
}

async fn drain(shell: &Context, node: &Arc<Node>, value: &str) -> Result<(), WriteError> {
    // Where there are no pods, a cordoned machine is an empty one.
    if !shell.has_pods {
        let node = patch_unschedulable(
            shell,
            node,
            Some(true),
            json!({annotation::LAST_APPLIED_DRAIN: value}),
        )
        .await?;
        machine::write_status(shell, &node, &drain_report(DrainProgress::Drained, &node)).await;
        return Ok(());
    }
    let node = cordon(shell, node).await?;
    machine::write_status(shell, &node, &drain_report(DrainProgress::Draining, &node)).await;
    let mut blockers = Vec::new();
    loop {
        match evict::attempt_drain(
            shell,
            &node,
            &mut blockers,
            request_withdrawn(shell, &node, value),
        )
        .await
        {
            evict::EvictionOutcome::Drained => break,
            evict::EvictionOutcome::Cancelled => return Ok(()),
            evict::EvictionOutcome::Failed(error) => {
                let pause = report_failure(shell, &node, &error, &blockers).await;
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = request_withdrawn(shell, &node, value) => return Ok(()),
                }
            }
        }
    }
    shell.metrics.set_drain_error(&node.name_any(), None);
    // Somebody may have uncordoned it meanwhile: then pods may be back, and it all begins again.
    let Some(now) = shell.caches.nodes.get(&node.name_any()) else { return Ok(()) };
    if now.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true) {
        return Ok(());
    }
    let done =
        patch_unschedulable(shell, &now, None, json!({annotation::LAST_APPLIED_DRAIN: value}))
            .await?;
    machine::write_status(shell, &done, &drain_report(DrainProgress::Drained, &done)).await;
    Ok(())
}

/// Cordons a machine, and remembers on it since when it is being drained.
async fn cordon(shell: &Context, node: &Arc<Node>) -> Result<Arc<Node>, WriteError> {
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    if is_cordoned && node.annotations().contains_key(annotation::machinist::DRAIN_STARTED) {
        return Ok(Arc::clone(node));
    }
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    match patch_unschedulable(
        shell,
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
                machine::write_status(shell, node, &drain_report(step, node)).await;
            }
            Err(error)
        }
    }
}

/// Ends when the machine does not want this drain any more: it asks for something else, somebody uncordoned it, or it is
/// gone.
async fn request_withdrawn(shell: &Context, node: &Arc<Node>, value: &str) {
    let name = node.name_any();
    let mut changes = shell.caches.nodes.subscribe();
    let is_wanted = || {
        shell.caches.nodes.get(&name).is_some_and(|node| {
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

/// Tells everyone who may want to know that an attempt failed; how long to wait for the next.
async fn report_failure(
    shell: &Context,
    node: &Arc<Node>,
    error: &str,
    blockers: &[DrainBlocker],
) -> Duration {
    let name = node.name_any();
    let now = Time(Timestamp::now());
    let sentences: Vec<String> = blockers.iter().map(|blocker| blocker.message_at(&now)).collect();
    let step = DrainProgress::DrainFailed { error, blockers: &sentences };
    machine::write_status(shell, node, &drain_report(step, node)).await;
    let started = node.annotations().get(annotation::machinist::DRAIN_STARTED);
    let started = started.and_then(|text| text.parse().ok()).map_or(now.clone(), Time);
    let retry = after_failure(&name, error, &started, &now);
    shell.metrics.set_drain_error(&name, retry.alert.then_some(1));
    for warning in retry.warnings {
        shell.events.report_event(
            event_component::NODE,
            node.as_ref(),
            true,
            warning.reason,
            warning.message,
        );
    }
    retry.after
}

/// Cordons or uncordons, and writes annotations, in one request, and only if the machine still asks for it.
async fn patch_unschedulable(
    shell: &Context,
    node: &Arc<Node>,
    unschedulable: Option<bool>,
    annotations: Value,
) -> Result<Arc<Node>, WriteError> {
    let mut patch = json!({"metadata": {"annotations": annotations}});
    if let Some(unschedulable) = unschedulable {
        patch["spec"] = json!({"unschedulable": unschedulable});
    }
    let grounds = PatchPreconditions { annotations: &[annotation::DESIRED_DRAIN], labels: false };
    Ok(Arc::new(shell.patch_node(node, &patch, grounds).await?))
}
