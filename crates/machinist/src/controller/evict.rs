//! One attempt to empty a machine: ask its pods to leave, wait until they have.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, EvictParams, ListParams, Preconditions};
use kube::{Api, ResourceExt as _};
use machinist_core::drain::{
    ATTEMPT_TIMEOUT, Answer, Blocker, DaemonSetRef, EVICTION_RETRY, Plan, PodRef, answer, blockers,
    daemon_sets, plan,
};
use tokio::time::Instant;

use super::events::Component;
use super::shell::{Shell, WriteError};

/// How many pods of a machine are asked at a time.
const AT_A_TIME: usize = 8;
/// How soon to look whether pods that are leaving have left.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The machine is empty.
    Empty,
    /// Nobody wants it any more.
    NotWanted,
    /// Not in time, or not at all.
    Failed(String),
}

/// Makes one attempt. `until` ends when nobody wants it any more. `known` are the pods that were in the way so far.
pub(super) async fn attempt(
    shell: &Shell,
    node: &Arc<Node>,
    known: &mut Vec<Blocker>,
    until: impl Future<Output = ()>,
) -> Outcome {
    tokio::select! {
        outcome = empty(shell, node, known) => outcome,
        () = until => Outcome::NotWanted,
    }
}

async fn empty(shell: &Shell, node: &Arc<Node>, known: &mut Vec<Blocker>) -> Outcome {
    let deadline = Instant::now() + ATTEMPT_TIMEOUT;
    let mut next_ask = Instant::now();
    let mut refused: Vec<(PodRef, Option<String>, String)> = Vec::new();
    loop {
        let plan = match look(shell, &node.name_any()).await {
            Ok(plan) => plan,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        if plan.is_drained() {
            known.clear();
            return Outcome::Empty;
        }
        if Instant::now() >= next_ask && !plan.evict.is_empty() {
            next_ask = Instant::now() + EVICTION_RETRY;
            refused = match ask(shell, &plan).await {
                Ok(refused) => refused,
                Err(error) => return Outcome::Failed(error),
            };
            in_the_way(shell, node, known, &refused);
        }
        if Instant::now() >= deadline {
            let late = plan
                .wait
                .iter()
                .map(|pod| (pod.clone(), None, "it is shutting down and does not end".to_owned()));
            in_the_way(shell, node, known, &late.chain(refused).collect::<Vec<_>>());
            return Outcome::Failed(message(known));
        }
        // While nobody leaves there is nothing to see before the next question.
        let pause = if plan.wait.is_empty() && !refused.is_empty() {
            next_ask.saturating_duration_since(Instant::now()).max(LOOK_AGAIN)
        } else {
            LOOK_AGAIN
        };
        tokio::time::sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
    }
}

/// Remembers who is in the way, and says so at once: an administrator should not have to wait for an hour.
fn in_the_way(
    shell: &Shell,
    node: &Arc<Node>,
    known: &mut Vec<Blocker>,
    refused: &[(PodRef, Option<String>, String)],
) {
    let now = Time(Timestamp::now());
    let before = std::mem::take(known);
    *known = blockers(&before, refused.iter().cloned(), &now);
    for blocker in known.iter() {
        if !before.iter().any(|old| old.pod == blocker.pod && old.budget == blocker.budget) {
            let text = blocker.sentence(&now);
            shell.events.report(Component::Node, node.as_ref(), true, "DrainBlocked", text);
        }
    }
}

fn message(blockers: &[Blocker]) -> String {
    let now = Time(Timestamp::now());
    let sentences: Vec<String> = blockers.iter().map(|blocker| blocker.sentence(&now)).collect();
    if sentences.is_empty() {
        format!("the pods did not leave within {} s", ATTEMPT_TIMEOUT.as_secs())
    } else {
        sentences.join(", ")
    }
}

/// What has to happen to the pods of a machine.
async fn look(shell: &Shell, node: &str) -> Result<Plan, WriteError> {
    let api: Api<Pod> = Api::all(shell.client.clone());
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = shell.write(api.list(&params)).await?.items;
    let mut gone = BTreeSet::new();
    for daemon_set in daemon_sets(&pods) {
        if !exists(shell, &daemon_set).await? {
            gone.insert(daemon_set);
        }
    }
    Ok(plan(&pods, &gone))
}

async fn exists(shell: &Shell, daemon_set: &DaemonSetRef) -> Result<bool, WriteError> {
    let api: Api<DaemonSet> = Api::namespaced(shell.client.clone(), &daemon_set.namespace);
    Ok(shell.write(api.get_metadata_opt(&daemon_set.name)).await?.is_some())
}

/// Asks all pods that have to go; who refused, by which budget, in which words.
async fn ask(shell: &Shell, plan: &Plan) -> Result<Vec<(PodRef, Option<String>, String)>, String> {
    let question = |pod| async move { (pod, evict(shell, pod).await) }.boxed();
    let questions: Vec<_> = plan.evict.iter().map(question).collect();
    let mut answers = futures::stream::iter(questions).buffer_unordered(AT_A_TIME);
    let mut refused = Vec::new();
    while let Some((pod, result)) = answers.next().await {
        match result {
            Ok(()) => {}
            Err(WriteError::Api(kube::Error::Api(status))) => match answer(&status) {
                Answer::Gone | Answer::NamespaceTerminating => {}
                Answer::Blocked { budget, message } => {
                    refused.push((pod.clone(), budget, message));
                }
                Answer::Failed { message } => {
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

/// Asks one pod to leave, in its own time; only this one, not a later one of its name.
async fn evict(shell: &Shell, pod: &PodRef) -> Result<(), WriteError> {
    let api: Api<Pod> = Api::namespaced(shell.client.clone(), &pod.namespace);
    let uid = Some(pod.uid.clone()).filter(|uid| !uid.is_empty());
    let preconditions = uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None });
    let delete_options = Some(DeleteParams { preconditions, ..DeleteParams::default() });
    let params = EvictParams { delete_options, ..EvictParams::default() };
    shell.write(api.evict(&pod.name, &params)).await.map(drop)
}
