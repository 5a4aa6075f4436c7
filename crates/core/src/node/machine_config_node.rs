//! The status of a MachineConfigNode: one object per machine, with a condition for each step of an
//! update. Steps come in pairs: a phase (the parent) and the action in it (the child).
//!
//! The daemon and the drain controller create [`NodeReport`]s; [`apply_report`] merges one into the
//! status.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

use crate::api::names::{NOT_YET_SET, condition::node as condition};
use crate::api::{
    Condition, ConfigVersionStatus, DesiredConfigVersion, MachineConfigNode, MachineConfigNodeSpec,
    MachineConfigNodeStatus, NameReference, Nullable,
};

use super::NodeView;

/// The conditions that every MachineConfigNode has after its first report.
pub const CONDITIONS: [&str; 14] = [
    condition::UPDATE_PREPARED,
    condition::UPDATE_EXECUTED,
    condition::UPDATE_POST_ACTION_COMPLETE,
    condition::UPDATE_COMPLETE,
    condition::RESUMED,
    condition::DRAINED,
    condition::APPLIED_FILES_AND_OS,
    condition::CORDONED,
    condition::REBOOTED_NODE,
    condition::UPDATED,
    condition::UNCORDONED,
    condition::NODE_DEGRADED,
    condition::PINNED_IMAGE_SETS_DEGRADED,
    condition::PINNED_IMAGE_SETS_PROGRESSING,
];

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is in progress.
    Unknown,
}

impl ConditionStatus {
    /// The value in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// The desired state of one condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionReport {
    /// The condition type; see [`names::condition::node`](crate::api::names::condition::node).
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// A machine-readable reason.
    pub reason: String,
    /// A human-readable message.
    pub message: String,
}

impl ConditionReport {
    /// A report of one condition.
    #[must_use]
    pub fn new(type_: &str, status: ConditionStatus, reason: &str, message: &str) -> Self {
        let (type_, reason) = (type_.to_owned(), reason.to_owned());
        Self { type_, status, reason, message: message.to_owned() }
    }

    fn condition(&self, now: &Time) -> Condition {
        new_condition(&self.type_, self.status, &self.reason, &self.message, now)
    }
}

fn new_condition(
    type_: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    now: &Time,
) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.as_str().to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Nullable::Set(now.clone()),
        ..Condition::default()
    }
}

/// A step of an update: the phase and the action in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReport {
    /// The phase.
    pub parent: ConditionReport,
    /// The action, if the phase has several.
    pub child: Option<ConditionReport>,
}

/// The MachineConfigNode for a machine that has none. The Node owns it, so both are deleted together.
#[must_use]
pub fn new_machine_config_node(node: &Node, pool: &str) -> MachineConfigNode {
    let view = NodeView(node);
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: view.name().to_owned(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    MachineConfigNode {
        metadata: ObjectMeta {
            name: Some(view.name().to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: MachineConfigNodeSpec {
            node: NameReference::new(view.name()),
            pool: NameReference::new(pool),
            config_version: DesiredConfigVersion {
                desired: or_not_yet_set(view.desired_config()).to_owned(),
                ..DesiredConfigVersion::default()
            },
            ..MachineConfigNodeSpec::default()
        },
        status: None,
    }
}

fn or_not_yet_set(config: &str) -> &str {
    if config.is_empty() { NOT_YET_SET } else { config }
}

/// The status after a report. `None` if nothing has to be written: the phase is unchanged, or only
/// timestamps would change.
#[must_use]
pub fn apply_report(
    machine: &MachineConfigNode,
    node: &Node,
    report: &NodeReport,
    now: &Time,
) -> Option<MachineConfigNodeStatus> {
    let before = machine.status.clone().unwrap_or_default();
    let old = before.conditions.as_deref().unwrap_or_default();
    let conditions = if old.is_empty() {
        initial_conditions(report, now)
    } else if is_repeated(old, &report.parent) {
        return None;
    } else {
        next_conditions(old, machine, report, now)
    };
    let generation = machine.metadata.generation.unwrap_or_default() + 1;
    let status = MachineConfigNodeStatus {
        observed_generation: Some(generation),
        conditions: Some(conditions),
        config_version: Some(config_version(&before, node, &report.parent)),
        ..before.clone()
    };
    (!is_same_status(&before, &status)).then_some(status)
}

/// The initial conditions: the reported ones, and the others as not yet reached.
fn initial_conditions(report: &NodeReport, now: &Time) -> Vec<Condition> {
    let mut conditions: Vec<Condition> =
        reported(report).map(|statement| statement.condition(now)).collect();
    for type_ in CONDITIONS {
        if !conditions.iter().any(|condition| condition.type_ == type_) {
            let message = format!("This node has not yet entered the {type_} phase");
            conditions.push(new_condition(
                type_,
                ConditionStatus::False,
                "NotYetOccurred",
                &message,
                now,
            ));
        }
    }
    conditions
}

fn reported(report: &NodeReport) -> impl Iterator<Item = &ConditionReport> {
    std::iter::once(&report.parent).chain(&report.child)
}

/// Whether the phase is unchanged. Phases about pinned images never count as unchanged: they have no
/// child that could differ, and other status fields change with them.
fn is_repeated(old: &[Condition], parent: &ConditionReport) -> bool {
    let singletons =
        [condition::PINNED_IMAGE_SETS_DEGRADED, condition::PINNED_IMAGE_SETS_PROGRESSING];
    !singletons.contains(&parent.type_.as_str())
        && old.iter().any(|condition| {
            condition.type_ == parent.type_
                && condition.status == parent.status.as_str()
                && condition.message.as_deref().unwrap_or_default() == parent.message
        })
}

fn next_conditions(
    old: &[Condition],
    machine: &MachineConfigNode,
    report: &NodeReport,
    now: &Time,
) -> Vec<Condition> {
    let mut conditions = old.to_vec();
    // The machine has reached or left its config: mark earlier steps as history.
    if report.parent.type_ == condition::UPDATED {
        let update = update_name(machine);
        for condition in conditions.iter_mut().filter(|condition| condition.status != "False") {
            let message = condition.message.as_deref().unwrap_or_default();
            condition.message = Some(format!("Action during update to {update}: {message}"));
            condition.status = ConditionStatus::False.as_str().to_owned();
            condition.last_transition_time = Nullable::Set(now.clone());
        }
    }
    // MCO appends a new child before a new parent.
    for statement in report.child.iter().chain(std::iter::once(&report.parent)) {
        let new = statement.condition(now);
        match conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
            Some(condition) => *condition = new,
            None => conditions.push(new),
        }
    }
    conditions
}

/// The target of the last update: an image, the end of image mode, or a config.
fn update_name(machine: &MachineConfigNode) -> &str {
    let wanted = machine.spec.config_image.as_ref().map_or("", |image| &image.desired_image);
    let status = machine.status.as_ref().and_then(|status| status.config_image.as_ref());
    let current = status.and_then(|image| image.current_image.as_deref()).unwrap_or_default();
    match wanted {
        wanted if wanted == current => &machine.spec.config_version.desired,
        "" => "disable image mode",
        image => image,
    }
}

fn config_version(
    before: &MachineConfigNodeStatus,
    node: &Node,
    parent: &ConditionReport,
) -> ConfigVersionStatus {
    let view = NodeView(node);
    let mut version = before.config_version.clone().unwrap_or_default();
    // The desired config is set only once the change is known to be possible.
    let promised =
        parent.type_ != condition::UPDATE_PREPARED || parent.status == ConditionStatus::True;
    let desired = if promised { or_not_yet_set(view.desired_config()) } else { NOT_YET_SET };
    desired.clone_into(&mut version.desired);
    if !view.current_config().is_empty() {
        version.current = Some(view.current_config().to_owned());
    }
    version
}

fn is_same_status(before: &MachineConfigNodeStatus, after: &MachineConfigNodeStatus) -> bool {
    let timeless = |status: &MachineConfigNodeStatus| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_transition_time = Nullable::Absent;
        }
        status
    };
    timeless(before) == timeless(after)
}

#[cfg(test)]
mod tests;
