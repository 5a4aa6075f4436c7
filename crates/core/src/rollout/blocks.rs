//! What keeps a rollout from going on: machines, pods, budgets and reasons by name, so that `kubectl
//! describe machineconfigpool` is enough. The controller writes it into the pool's condition
//! `RolloutBlocked`; `rollout::policy` decides about the machines themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{RolloutDecision, RolloutHalted, WaitReason};
use crate::api::names::annotation::{DESIRED_DRAIN, POST_CONFIG_ACTION};
use crate::api::names::state;
use crate::drain::DrainBlocker;
use crate::node::{NodeView, NotReady};

/// A refused eviction is normal for a moment: the pods of a budget move one after the other.
const BUDGET_GRACE: Duration = Duration::from_secs(30);
/// A kubelet that restarts is not ready for a moment.
const NOT_READY_GRACE: Duration = Duration::from_secs(60);
/// A machine that reboots is not ready for long.
const REBOOT_GRACE: Duration = Duration::from_secs(600);
/// How many machines a condition names.
const MAX_SHOWN: usize = 10;
/// How many characters of a message of others are shown.
const MAX_MESSAGE_CHARS: usize = 300;

/// Something that keeps machines of a pool from their config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutBlock {
    /// The reason of the condition.
    pub reason: &'static str,
    /// The machine, the cause and the remedy.
    pub message: String,
}

/// What blocks a rollout now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RolloutBlocks {
    /// The blocks, by machine.
    pub blocks: Vec<RolloutBlock>,
    /// When there may be another one without any event.
    pub recheck: Option<Time>,
}

/// Finds what blocks the machines that a decision leaves waiting. `drains` has the pods that block the
/// drain of a machine.
#[must_use]
pub fn rollout_blocks(
    nodes: &[&Node],
    decision: &RolloutDecision,
    drains: &BTreeMap<String, Vec<DrainBlocker>>,
    now: &Time,
) -> RolloutBlocks {
    let mut found = RolloutBlocks::default();
    // A pool that stands still on purpose is not blocked.
    if matches!(decision.halted, Some(RolloutHalted::NothingRendered | RolloutHalted::Paused)) {
        return found;
    }
    let mut more = 0;
    let waits = |node: &&&Node| {
        let reason = decision.waiting.get(NodeView(node).name());
        reason.is_some_and(|reason| !matches!(reason, WaitReason::Observing { .. }))
    };
    for node in nodes.iter().filter(waits) {
        let view = NodeView(node);
        let drain = drains.get(view.name()).map(Vec::as_slice).unwrap_or_default();
        if let Some(WaitReason::Refused { because }) = decision.waiting.get(view.name()) {
            let message = format!("node {} would refuse the config: {because}", view.name());
            add(&mut found, RolloutBlock { reason: "ConfigRefused", message }, &mut more);
            continue;
        }
        let block = match block_of(view, drain) {
            Some((block, since, grace)) if is_over(since.as_ref(), grace, now) => block,
            Some((_, since, grace)) => {
                let at = since.and_then(|since| since.0.checked_add(grace).ok()).map(Time);
                found.recheck = found.recheck.into_iter().chain(at).min();
                continue;
            }
            None => continue,
        };
        add(&mut found, block, &mut more);
    }
    if let Some(last) = found.blocks.last_mut().filter(|_| more > 0) {
        last.message = format!("{}; and {more} more machines", last.message);
    }
    found
}

fn add(found: &mut RolloutBlocks, block: RolloutBlock, more: &mut usize) {
    if found.blocks.len() < MAX_SHOWN {
        found.blocks.push(block);
    } else {
        *more += 1;
    }
}

fn is_over(since: Option<&Time>, grace: Duration, now: &Time) -> bool {
    since.and_then(|since| since.0.checked_add(grace).ok()).is_none_or(|end| end <= now.0)
}

/// What blocks a machine, since when, and how long that is normal.
fn block_of(
    view: NodeView<'_>,
    drain: &[DrainBlocker],
) -> Option<(RolloutBlock, Option<Time>, Duration)> {
    let name = view.name();
    let block = |reason, message| RolloutBlock { reason, message };
    match view.not_ready() {
        Some(NotReady::NotReady(_)) => {
            let grace = match view.annotation(POST_CONFIG_ACTION) {
                Some(state::REBOOTING) => REBOOT_GRACE,
                _ => NOT_READY_GRACE,
            };
            let (text, since) = condition_text(view, "Ready");
            let message = format!("node {name} is not ready{text}");
            return Some((block("NodeNotReady", message), since, grace));
        }
        Some(NotReady::DiskPressure(_)) => {
            let (text, since) = condition_text(view, "DiskPressure");
            let message = format!("node {name} has disk pressure{text}");
            return Some((block("NodeDiskPressure", message), since, NOT_READY_GRACE));
        }
        Some(NotReady::NetworkUnavailable(_)) => {
            let (text, since) = condition_text(view, "NetworkUnavailable");
            let message = format!("node {name} has no network{text}");
            return Some((block("NodeNetworkUnavailable", message), since, NOT_READY_GRACE));
        }
        Some(NotReady::Unschedulable) | None => {}
    }
    if let Some(first) = drain.first() {
        let since = drain.iter().map(|blocker| &blocker.since).min().cloned();
        let pods: Vec<String> = drain.iter().take(MAX_SHOWN).map(blocker_text).collect();
        let message = format!("node {name} cannot be drained: {}", pods.join(", "));
        let reason = if first.budget.is_some() { "DisruptionBudget" } else { "DrainBlocked" };
        return Some((block(reason, message), since, BUDGET_GRACE));
    }
    if view.not_ready().is_some() && !is_drained_by_us(view) {
        let message = format!(
            "node {name} is cordoned, and Machinist did not cordon it: kubectl uncordon {name} lets it be updated"
        );
        return Some((block("NodeCordoned", message), None, Duration::ZERO));
    }
    if view.current_config().is_empty() {
        let message = format!(
            "node {name} has not reported its config: check that a machinist daemon runs on it"
        );
        return Some((block("NoDaemon", message), view.created().cloned(), NOT_READY_GRACE));
    }
    if view.lacks_target() {
        let message = format!(
            "node {name} was registered again and has no desired config; it gets one when maxUnavailable allows it"
        );
        return Some((block("NoDesiredConfig", message), None, Duration::ZERO));
    }
    None
}

/// Whether Machinist cordoned the machine for a drain, and has not been asked to uncordon it.
fn is_drained_by_us(view: NodeView<'_>) -> bool {
    view.annotation(DESIRED_DRAIN).is_some_and(|request| request.starts_with("drain-"))
}

fn blocker_text(blocker: &DrainBlocker) -> String {
    let since = blocker.since.0.strftime("%Y-%m-%dT%H:%M:%SZ");
    let cause = shorten(&blocker.message);
    match &blocker.budget {
        Some(budget) => {
            format!("pod {} is held by budget {budget} since {since} ({cause})", blocker.pod)
        }
        None => format!("pod {} stays since {since} ({cause})", blocker.pod),
    }
}

/// The text of a condition of the Node, and since when it has it.
fn condition_text(view: NodeView<'_>, type_: &str) -> (String, Option<Time>) {
    let conditions = view.0.status.as_ref().and_then(|status| status.conditions.as_deref());
    let found = conditions.unwrap_or_default().iter().find(|found| found.type_ == type_);
    let Some(found) = found else { return (String::new(), None) };
    let since = found.last_transition_time.clone();
    let mut text = since
        .as_ref()
        .map(|since| format!(" since {}", since.0.strftime("%Y-%m-%dT%H:%M:%SZ")))
        .unwrap_or_default();
    if let Some(message) = message_of(found) {
        text = format!("{text}: {message}");
    }
    (text, since)
}

fn message_of(condition: &NodeCondition) -> Option<String> {
    let texts = [condition.message.as_deref(), condition.reason.as_deref()];
    texts.into_iter().flatten().find(|text| !text.is_empty()).map(shorten)
}

fn shorten(text: &str) -> String {
    text.chars().take(MAX_MESSAGE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::annotation::{CURRENT_CONFIG, DESIRED_CONFIG};
    use crate::drain::PodRef;
    use serde_json::{Value, json};

    fn time(text: &str) -> Time {
        Time(text.parse().unwrap())
    }

    fn node(annotations: &Value, status: &str, unschedulable: bool) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n2", "annotations": annotations,
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"unschedulable": unschedulable},
            "status": {"conditions": [{"type": "Ready", "status": status,
                "lastTransitionTime": "2026-01-01T12:00:00Z",
                "message": "Kubelet stopped posting node status."}]},
        }))
        .unwrap()
    }

    fn found(node: &Node, drain: &[DrainBlocker], now: &str) -> RolloutBlocks {
        let waiting = WaitReason::Working { state: "Working".to_owned() };
        let decision = RolloutDecision {
            waiting: [("n2".to_owned(), waiting)].into(),
            ..RolloutDecision::default()
        };
        let drains = BTreeMap::from([("n2".to_owned(), drain.to_vec())]);
        rollout_blocks(&[node], &decision, &drains, &time(now))
    }

    #[test]
    fn the_cause_is_named_once_it_is_not_normal_any_more() {
        let updating = json!({CURRENT_CONFIG: "a", DESIRED_CONFIG: "b"});
        let draining = json!({CURRENT_CONFIG: "a", DESIRED_CONFIG: "b", DESIRED_DRAIN: "drain-b"});
        let rebooting =
            json!({CURRENT_CONFIG: "a", DESIRED_CONFIG: "b", POST_CONFIG_ACTION: "Rebooting"});
        let pod = PodRef { namespace: "shop".into(), name: "db-0".into(), uid: String::new() };
        let blocker = DrainBlocker {
            pod,
            budget: Some("db".to_owned()),
            since: time("2026-01-01T12:00:00Z"),
            message: "needs 2 healthy pods and has 1 currently".to_owned(),
        };
        let stays = DrainBlocker { budget: None, message: "it stays".into(), ..blocker.clone() };
        let stopped =
            "node n2 is not ready since 2026-01-01T12:00:00Z: Kubelet stopped posting node status.";
        for (annotations, ready, cordoned, drain, now, expected) in [
            (&updating, "True", false, vec![], "12:00:10", None),
            (&updating, "Unknown", false, vec![], "12:00:30", None),
            (&updating, "Unknown", false, vec![], "12:01:00", Some(("NodeNotReady", stopped))),
            (&rebooting, "Unknown", false, vec![], "12:09:59", None),
            (&rebooting, "False", false, vec![], "12:10:00", Some(("NodeNotReady", stopped))),
            (&draining, "True", true, vec![], "12:30:00", None),
            (&draining, "True", true, vec![blocker.clone()], "12:00:29", None),
            (
                &draining,
                "True",
                true,
                vec![blocker],
                "12:00:30",
                Some((
                    "DisruptionBudget",
                    "node n2 cannot be drained: pod shop/db-0 is held by budget db since 2026-01-01T12:00:00Z (needs 2 healthy pods and has 1 currently)",
                )),
            ),
            (
                &draining,
                "True",
                true,
                vec![stays],
                "12:01:00",
                Some((
                    "DrainBlocked",
                    "node n2 cannot be drained: pod shop/db-0 stays since 2026-01-01T12:00:00Z (it stays)",
                )),
            ),
            (
                &updating,
                "True",
                true,
                vec![],
                "12:00:00",
                Some((
                    "NodeCordoned",
                    "node n2 is cordoned, and Machinist did not cordon it: kubectl uncordon n2 lets it be updated",
                )),
            ),
            (
                &json!({}),
                "True",
                false,
                vec![],
                "12:00:00",
                Some((
                    "NoDaemon",
                    "node n2 has not reported its config: check that a machinist daemon runs on it",
                )),
            ),
            (
                &json!({CURRENT_CONFIG: "a"}),
                "True",
                false,
                vec![],
                "12:00:00",
                Some((
                    "NoDesiredConfig",
                    "node n2 was registered again and has no desired config; it gets one when maxUnavailable allows it",
                )),
            ),
        ] {
            let node = node(annotations, ready, cordoned);
            let found = found(&node, &drain, &format!("2026-01-01T{now}Z"));
            let block = found.blocks.first().map(|block| (block.reason, block.message.as_str()));
            assert_eq!(block, expected, "{annotations} at {now}");
        }
    }

    #[test]
    fn a_later_look_is_planned_for_what_is_still_normal() {
        let updating = json!({CURRENT_CONFIG: "a", DESIRED_CONFIG: "b"});
        let found = found(&node(&updating, "Unknown", false), &[], "2026-01-01T12:00:30Z");
        let recheck = Some(time("2026-01-01T12:01:00Z"));
        assert_eq!(found, RolloutBlocks { blocks: Vec::new(), recheck });
    }

    #[test]
    fn a_condition_stays_short() {
        let one = node(&json!({CURRENT_CONFIG: "a", DESIRED_CONFIG: "a"}), "True", true);
        let nodes: Vec<Node> = (0..50)
            .map(|index| {
                let mut node = one.clone();
                node.metadata.name = Some(format!("n{index}"));
                node
            })
            .collect();
        let working = || WaitReason::Working { state: String::new() };
        let waiting =
            nodes.iter().filter_map(|node| Some((node.metadata.name.clone()?, working())));
        let decision = RolloutDecision { waiting: waiting.collect(), ..RolloutDecision::default() };
        let nodes: Vec<&Node> = nodes.iter().collect();
        let now = time("2026-01-01T12:00:30Z");
        let found = rollout_blocks(&nodes, &decision, &BTreeMap::new(), &now);
        assert_eq!(found.blocks.len(), MAX_SHOWN);
        let last = &found.blocks[MAX_SHOWN - 1].message;
        assert!(last.ends_with("; and 40 more machines"), "{last}");
    }
}
