//! Reports for the MachineConfigNode about cordon, drain and uncordon, in MCO's words.

use k8s_openapi::api::core::v1::Node;

use crate::api::names::annotation::{DESIRED_DRAIN, LAST_APPLIED_DRAIN};
use crate::api::names::condition::node::{
    CORDONED, DRAINED, UNCORDONED, UPDATE_COMPLETE, UPDATE_EXECUTED,
};
use crate::node::NodeView;
use crate::node::machine_config_node::{ConditionReport, ConditionStatus, NodeReport};

/// A step of a drain, or its failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainProgress<'a> {
    /// It is cordoned.
    Cordoned,
    /// It could not be cordoned.
    CordonFailed {
        /// Why.
        error: &'a str,
    },
    /// Its pods are being evicted.
    Draining,
    /// An attempt failed.
    DrainFailed {
        /// Why.
        error: &'a str,
        /// Messages about the blocking pods; may be empty.
        blockers: &'a [String],
    },
    /// Its pods are gone.
    Drained,
    /// It is uncordoned.
    Uncordoned,
    /// It could not be uncordoned.
    UncordonFailed {
        /// Why.
        error: &'a str,
    },
}

/// The report after a step.
#[must_use]
pub fn drain_report(step: DrainProgress<'_>, node: &Node) -> NodeReport {
    let view = NodeView(node);
    let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let desired = view.annotation(DESIRED_DRAIN).unwrap_or_default();
    let applied = view.annotation(LAST_APPLIED_DRAIN).unwrap_or_default();
    let until = format!(
        "The drain will not be complete until desired drainer {desired} matches current drainer {applied}"
    );
    let reporting = format!("The node is reporting Unschedulable = {unschedulable}");
    let executed = |child: &str, parent: &str, truth: ConditionStatus, message: String| {
        parent_and_child(
            (UPDATE_EXECUTED, ConditionStatus::Unknown, parent),
            (child, truth, &message),
        )
    };
    match step {
        DrainProgress::Cordoned => {
            let parent = "Cordoned Node as part of update executed phase";
            executed(CORDONED, parent, ConditionStatus::True, format!("Cordoned node. {reporting}"))
        }
        DrainProgress::CordonFailed { error } => {
            let parent = "Failed to Cordon Node as part of In progress update phase";
            let message = format!("Error: Failed to Cordon node. Error is {error}, {reporting}");
            executed(CORDONED, parent, ConditionStatus::Unknown, message)
        }
        DrainProgress::Draining => {
            let parent = "Draining Node as part of update executed phase";
            executed(DRAINED, parent, ConditionStatus::Unknown, format!("Draining node. {until}"))
        }
        DrainProgress::DrainFailed { error, blockers } => {
            // An unchanged parent is not written, nor is its child. So both contain the blockers.
            let mut parent = "Node Drain has not succeeded".to_owned();
            if !blockers.is_empty() {
                parent = format!("{parent}: {}", blockers.join(", "));
            }
            let message = format!("Error: Node Drain has not succeeded. Error is: {error} {until}");
            executed(DRAINED, &parent, ConditionStatus::Unknown, message)
        }
        DrainProgress::Drained => {
            let parent = "Drained Node as part of update executed phase";
            let message = format!(
                "Drained node. The drain is complete as the desired drainer matches current drainer: {desired}"
            );
            executed(DRAINED, parent, ConditionStatus::True, message)
        }
        DrainProgress::Uncordoned => parent_and_child(
            (
                UPDATE_COMPLETE,
                ConditionStatus::True,
                "Uncordoned Node as part of completing upgrade phase",
            ),
            (UNCORDONED, ConditionStatus::True, &format!("UnCordoned node. {reporting}")),
        ),
        DrainProgress::UncordonFailed { error } => parent_and_child(
            (
                UPDATE_COMPLETE,
                ConditionStatus::Unknown,
                "Failed to Uncordon Node as part of completing upgrade phase",
            ),
            (
                UNCORDONED,
                ConditionStatus::Unknown,
                &format!("Error: Failed to UnCordon node. Error is: {error} {reporting}"),
            ),
        ),
    }
}

fn parent_and_child(
    parent: (&str, ConditionStatus, &str),
    child: (&str, ConditionStatus, &str),
) -> NodeReport {
    let reason = format!("{}{}", parent.0, child.0);
    NodeReport {
        parent: ConditionReport::new(parent.0, parent.1, child.0, parent.2),
        child: Some(ConditionReport::new(child.0, child.1, &reason, child.2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_match_mco() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "annotations": {DESIRED_DRAIN: "drain-b", LAST_APPLIED_DRAIN: "uncordon-a"}},
            "spec": {"unschedulable": true}
        }))
        .unwrap();
        let until = "The drain will not be complete until desired drainer drain-b matches current drainer uncordon-a";
        for (step, reason, parent, child) in [
            (
                DrainProgress::Cordoned,
                "UpdateExecutedCordoned",
                "Unknown Cordoned Node as part of update executed phase".to_owned(),
                "True Cordoned node. The node is reporting Unschedulable = true".to_owned(),
            ),
            (
                DrainProgress::CordonFailed { error: "no" },
                "UpdateExecutedCordoned",
                "Unknown Failed to Cordon Node as part of In progress update phase".to_owned(),
                "Unknown Error: Failed to Cordon node. Error is no, The node is reporting Unschedulable = true".to_owned(),
            ),
            (
                DrainProgress::Draining,
                "UpdateExecutedDrained",
                "Unknown Draining Node as part of update executed phase".to_owned(),
                format!("Unknown Draining node. {until}"),
            ),
            (
                DrainProgress::DrainFailed { error: "no", blockers: &[] },
                "UpdateExecutedDrained",
                "Unknown Node Drain has not succeeded".to_owned(),
                format!("Unknown Error: Node Drain has not succeeded. Error is: no {until}"),
            ),
            (
                DrainProgress::DrainFailed { error: "no", blockers: &["pod a/b blocked by budget c for 4 m".to_owned()] },
                "UpdateExecutedDrained",
                "Unknown Node Drain has not succeeded: pod a/b blocked by budget c for 4 m".to_owned(),
                format!("Unknown Error: Node Drain has not succeeded. Error is: no {until}"),
            ),
            (
                DrainProgress::Drained,
                "UpdateExecutedDrained",
                "Unknown Drained Node as part of update executed phase".to_owned(),
                "True Drained node. The drain is complete as the desired drainer matches current drainer: drain-b".to_owned(),
            ),
            (
                DrainProgress::Uncordoned,
                "UpdateCompleteUncordoned",
                "True Uncordoned Node as part of completing upgrade phase".to_owned(),
                "True UnCordoned node. The node is reporting Unschedulable = true".to_owned(),
            ),
            (
                DrainProgress::UncordonFailed { error: "no" },
                "UpdateCompleteUncordoned",
                "Unknown Failed to Uncordon Node as part of completing upgrade phase".to_owned(),
                "Unknown Error: Failed to UnCordon node. Error is: no The node is reporting Unschedulable = true".to_owned(),
            ),
        ] {
            let found = drain_report(step, &node);
            let written = found.child.unwrap();
            let text = |statement: &ConditionReport| {
                format!("{} {}", statement.status.as_str(), statement.message)
            };
            assert_eq!(text(&found.parent), parent);
            assert_eq!(text(&written), child);
            assert_eq!(written.reason, reason);
            assert_eq!(format!("{}{}", found.parent.type_, written.type_), reason);
            assert_eq!(found.parent.reason, written.type_);
        }
    }
}
