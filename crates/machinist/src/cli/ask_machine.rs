//! Asks the daemon of a machine for a report, and waits for the answer: `machinist logs` and `machinist diff --live`.
//!
//! A daemon only dials out: the request is an annotation of its Node, the answer one of its MachineConfigNode,
//! encrypted for this process (`core::machine_report`). The request is removed in the end, and the daemon then removes
//! the answer.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::names::annotation::machinist::{REPORT, REPORT_REQUEST};
use machinist_core::hex::hex;
use machinist_core::machine_report::{ReportAnswer, ReportRequest};
use machinist_core::node::{NodeView, NotReady};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::cluster::session::ClusterSession;
use super::cluster::snapshot::SnapshotKind;
use super::node_request::{RequestDecision, request};
use super::once::printable;
use crate::machine_report::ReportKey;

/// After this long the request is written again: someone else has asked the machine meanwhile.
const ASK_AGAIN: Duration = Duration::from_secs(3);
/// The longest error of a machine that is shown, in characters.
const MAX_ERROR_CHARS: usize = 1000;

/// What a machine is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    /// The name of its Node.
    pub(super) node: &'a str,
    /// Which report.
    pub(super) report: &'static str,
    /// Of a log: only what comes after this position.
    pub(super) after: Option<&'a str>,
    /// Of a log: wait for something new.
    pub(super) follow: bool,
    /// How long to wait for the answer.
    pub(super) max_wait: Duration,
}

/// Asks a machine.
///
/// # Errors
/// It does not answer, or cannot.
pub(super) async fn ask<T: DeserializeOwned>(
    session: &ClusterSession,
    question: Question<'_>,
) -> Result<T> {
    let key = ReportKey::default();
    let wanted = ReportRequest {
        id: hex(&machinist_hub::random::bytes::<16>()?),
        report: question.report.to_owned(),
        recipient: key.recipient(),
        after: question.after.map(str::to_owned),
        follow: question.follow,
    };
    let text = serde_json::to_string(&wanted)?;
    let answer = wait_for_answer(session, question, &wanted.id, &text).await;
    let removed = withdraw(session, question.node, &text).await;
    let answer = answer?;
    removed.context("cannot remove the request from the Node")?;
    let error = |error: &str| {
        anyhow!(
            "{}: {}",
            question.node,
            printable(error).chars().take(MAX_ERROR_CHARS).collect::<String>()
        )
    };
    match (answer.report, answer.error) {
        (Some(sealed), None) => key.open(&sealed).with_context(|| question.node.to_owned()),
        (_, Some(text)) => Err(error(&text)),
        (None, None) => Err(error("the answer is empty")),
    }
}

async fn wait_for_answer(
    session: &ClusterSession,
    question: Question<'_>,
    id: &str,
    text: &str,
) -> Result<ReportAnswer> {
    let resource = session.needed(SnapshotKind::MachineConfigNode)?;
    let (name, end) = (question.node, Instant::now() + question.max_wait);
    loop {
        let asked = request(session, name, async |node| {
            if let Some(refusal) = cannot_answer(node) {
                bail!(refusal);
            }
            let is_there = NodeView(node).annotation(REPORT_REQUEST) == Some(text);
            Ok(match is_there {
                true => RequestDecision::Refuse(()),
                false => RequestDecision::Write(json!({REPORT_REQUEST: text}), ()),
            })
        });
        asked.await?;
        let answered = session.client.until(resource, None, name, |object| {
            let answer = object?.pointer("/metadata/annotations")?.get(REPORT)?.as_str()?;
            // An answer to someone else, or of someone hostile: not ours.
            ReportAnswer::parse(answer).ok().filter(|answer| answer.id == id)
        });
        let left = end.saturating_duration_since(Instant::now());
        match timeout(left.min(ASK_AGAIN), answered).await {
            Ok(answer) => return answer,
            Err(_) if left > ASK_AGAIN => {}
            Err(_) => bail!(
                "the daemon of {name} has not answered in {} s: see `machinist status {name}`; a daemon of an older version does not answer",
                question.max_wait.as_secs()
            ),
        }
    }
}

/// Why a machine is not asked.
fn cannot_answer(node: &Node) -> Option<String> {
    let view = NodeView(node);
    let name = view.name();
    if view.state().is_empty() {
        return Some(format!("Node {name} has no daemon of Machinist: nothing can be asked"));
    }
    let is_silent =
        matches!(view.not_ready(), Some(NotReady::NotReady(state)) if state == "Unknown");
    is_silent.then(|| format!("{name} is silent: see `machinist status {name}`"))
}

/// Removes the request, if it is still this one.
async fn withdraw(session: &ClusterSession, name: &str, text: &str) -> Result<()> {
    request(session, name, async |node| {
        let is_ours = NodeView(node).annotation(REPORT_REQUEST) == Some(text);
        Ok(match is_ours {
            true => RequestDecision::Write(json!({REPORT_REQUEST: Value::Null}), ()),
            false => RequestDecision::Refuse(()),
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_machine_is_not_asked() {
        let node = |state: &str, ready: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": {"name": "w1", "annotations": {
                    "machineconfiguration.openshift.io/state": state,
                }},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };
        assert_eq!(cannot_answer(&node("Done", "True")), None);
        assert_eq!(cannot_answer(&node("Degraded", "False")), None);
        assert!(cannot_answer(&node("Done", "Unknown")).unwrap().contains("machinist status w1"));
        assert!(cannot_answer(&node("", "True")).unwrap().contains("no daemon"));
    }
}
