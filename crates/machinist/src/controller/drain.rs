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
use machinist_core::rollout::guarded_patch::Preconditions;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::events::Component;
use super::evict;
use super::machine_config_node as machine;
use super::shell::{Shell, WriteError};
use super::turn::Turns;

/// Carries out requests for ever.
pub(super) async fn run(shell: Shell) {
    let mut turns = Turns::new(Duration::from_millis(10), Duration::from_millis(50));
    turns.after(shell.world.nodes.changes());
    shell.world.ready().await;
    let mut desk = Desk {
        shell: &shell,
        at_work: BTreeSet::new(),
        bad: BTreeMap::new(),
        tasks: JoinSet::new(),
    };
    desk.look_at_all();
    loop {
        tokio::select! {
            () = turns.next(None) => desk.look_at_all(),
            Some(done) = desk.tasks.join_next() => {
                // It may have asked for more while its task was ending. Only this one: thousands may end.
                if let Ok(name) = done {
                    desk.at_work.remove(&name);
                    desk.look_at(&name);
                }
            }
        }
    }
}

/// Who is being served.
struct Desk<'a> {
    shell: &'a Shell,
    at_work: BTreeSet<String>,
    /// Requests that cannot be understood, by machine, to complain of each once.
    bad: BTreeMap<String, DrainError>,
    tasks: JoinSet<String>,
}

impl Desk<'_> {
    fn look_at_all(&mut self) {
        let nodes = self.shell.world.nodes.all();
        for node in &nodes {
            self.look(node);
        }
    }

    fn look_at(&mut self, name: &str) {
        if let Some(node) = self.shell.world.nodes.get(name) {
            self.look(&node);
        }
    }

    /// Begins to serve a machine that asks for something.
    fn look(&mut self, node: &Arc<Node>) {
        let name = node.name_any();
        let request = pending_request(node);
        if request.is_ok() {
            self.bad.remove(&name);
        }
        match request {
            Ok(DrainRequest::None) => {}
            Ok(_) => {
                if self.at_work.insert(name.clone()) {
                    let shell = self.shell.clone();
                    self.tasks.spawn(async move {
                        serve(&shell, &name).await;
                        name
                    });
                }
            }
            Err(error) if self.bad.get(&name) == Some(&error) => {}
            Err(error) => {
                let text = error.to_string();
                let events = &self.shell.events;
                events.report(Component::Node, node.as_ref(), true, "DrainRequest", text);
                self.bad.insert(name, error);
            }
        }
    }
}

/// Serves one machine until it asks for nothing more.
async fn serve(shell: &Shell, name: &str) {
    let mut failures = 0usize;
    loop {
        let Some(node) = shell.world.nodes.get(name) else {
            shell.metrics.drain_error(name, None);
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
            Err(error) if error.is_stale() => changed(shell, &node).await,
            Err(error) => {
                tracing::warn!(node = name, %error, "cannot serve a drain request");
                let pause = CORDON_DELAYS[failures.min(CORDON_DELAYS.len() - 1)];
                failures += 1;
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = changed(shell, &node) => {}
                }
            }
        }
    }
}

/// Waits until a machine is not as it was, or is gone.
async fn changed(shell: &Shell, node: &Arc<Node>) {
    let name = node.name_any();
    let mut changes = shell.world.nodes.changes();
    let is_same = || {
        let now = shell.world.nodes.get(&name);
        now.is_some_and(|now| now.resource_version() == node.resource_version())
    };
    while is_same() {
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn uncordon(shell: &Shell, node: &Arc<Node>, value: &str) -> Result<(), WriteError> {
    let annotations = json!({
        annotation::LAST_APPLIED_DRAIN: value,
        annotation::machinist::DRAIN_STARTED: Value::Null,
    });
    match write(shell, node, Some(false), annotations).await {
        Ok(node) => {
            machine::tell(shell, &node, &drain_report(DrainProgress::Uncordoned, &node)).await;
            shell.metrics.drain_error(&node.name_any(), None);
            Ok(())
        }
        Err(error) => {
            if !error.is_stale() {
                let error = error.to_string();
                let step = DrainProgress::UncordonFailed { error: &error };
                machine::tell(shell, node, &drain_report(step, node)).await;
            }
            Err(error)
        }
    }
}

async fn drain(shell: &Shell, node: &Arc<Node>, value: &str) -> Result<(), WriteError> {
    // Where there are no pods, a cordoned machine is an empty one.
    if !shell.has_pods {
        let node =
            write(shell, node, Some(true), json!({annotation::LAST_APPLIED_DRAIN: value})).await?;
        machine::tell(shell, &node, &drain_report(DrainProgress::Drained, &node)).await;
        return Ok(());
    }
    let node = cordon(shell, node).await?;
    machine::tell(shell, &node, &drain_report(DrainProgress::Draining, &node)).await;
    let mut blockers = Vec::new();
    loop {
        match evict::attempt(shell, &node, &mut blockers, still_wanted(shell, &node, value)).await {
            evict::Outcome::Empty => break,
            evict::Outcome::NotWanted => return Ok(()),
            evict::Outcome::Failed(error) => {
                let pause = failed(shell, &node, &error, &blockers).await;
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = still_wanted(shell, &node, value) => return Ok(()),
                }
            }
        }
    }
    shell.metrics.drain_error(&node.name_any(), None);
    // Somebody may have uncordoned it meanwhile: then pods may be back, and it all begins again.
    let Some(now) = shell.world.nodes.get(&node.name_any()) else { return Ok(()) };
    if now.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true) {
        return Ok(());
    }
    let done = write(shell, &now, None, json!({annotation::LAST_APPLIED_DRAIN: value})).await?;
    machine::tell(shell, &done, &drain_report(DrainProgress::Drained, &done)).await;
    Ok(())
}

/// Cordons a machine, and remembers on it since when it is being drained.
async fn cordon(shell: &Shell, node: &Arc<Node>) -> Result<Arc<Node>, WriteError> {
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    if is_cordoned && node.annotations().contains_key(annotation::machinist::DRAIN_STARTED) {
        return Ok(Arc::clone(node));
    }
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    match write(shell, node, Some(true), json!({annotation::machinist::DRAIN_STARTED: now})).await {
        Ok(node) => Ok(node),
        Err(error) => {
            if !error.is_stale() {
                let error = error.to_string();
                let step = DrainProgress::CordonFailed { error: &error };
                machine::tell(shell, node, &drain_report(step, node)).await;
            }
            Err(error)
        }
    }
}

/// Ends when the machine does not want this drain any more: it asks for something else, somebody uncordoned it, or it is
/// gone.
async fn still_wanted(shell: &Shell, node: &Arc<Node>, value: &str) {
    let name = node.name_any();
    let mut changes = shell.world.nodes.changes();
    let is_wanted = || {
        shell.world.nodes.get(&name).is_some_and(|node| {
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
async fn failed(
    shell: &Shell,
    node: &Arc<Node>,
    error: &str,
    blockers: &[DrainBlocker],
) -> Duration {
    let name = node.name_any();
    let now = Time(Timestamp::now());
    let sentences: Vec<String> = blockers.iter().map(|blocker| blocker.message_at(&now)).collect();
    let step = DrainProgress::DrainFailed { error, blockers: &sentences };
    machine::tell(shell, node, &drain_report(step, node)).await;
    let started = node.annotations().get(annotation::machinist::DRAIN_STARTED);
    let started = started.and_then(|text| text.parse().ok()).map_or(now.clone(), Time);
    let retry = after_failure(&name, error, &started, &now);
    shell.metrics.drain_error(&name, retry.alert.then_some(1));
    for warning in retry.warnings {
        shell.events.report(Component::Node, node.as_ref(), true, warning.reason, warning.message);
    }
    retry.after
}

/// Cordons or uncordons, and writes annotations, in one request, and only if the machine still asks for it.
async fn write(
    shell: &Shell,
    node: &Arc<Node>,
    unschedulable: Option<bool>,
    annotations: Value,
) -> Result<Arc<Node>, WriteError> {
    let mut patch = json!({"metadata": {"annotations": annotations}});
    if let Some(unschedulable) = unschedulable {
        patch["spec"] = json!({"unschedulable": unschedulable});
    }
    let grounds = Preconditions { annotations: &[annotation::DESIRED_DRAIN], labels: false };
    Ok(Arc::new(shell.patch_node(node, &patch, grounds).await?))
}
