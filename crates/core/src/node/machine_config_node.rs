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
mod tests {
    use super::*;
    use crate::api::names::annotation::{CURRENT_CONFIG, DESIRED_CONFIG};
    use serde_json::{Value, json};

    fn time(second: u32) -> Time {
        serde_json::from_value(json!(format!("2026-11-15T10:00:{second:02}Z"))).unwrap()
    }

    fn node(current: &str, desired: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n", "uid": "u", "annotations":
            {CURRENT_CONFIG: current, DESIRED_CONFIG: desired}}}))
        .unwrap()
    }

    fn statement(type_: &str, status: ConditionStatus, message: &str) -> ConditionReport {
        ConditionReport::new(type_, status, type_, message)
    }

    fn alone(type_: &str, status: ConditionStatus, message: &str) -> NodeReport {
        NodeReport { parent: statement(type_, status, message), child: None }
    }

    fn condition_of(status: &MachineConfigNodeStatus, type_: &str) -> (String, String, Value) {
        let conditions = status.conditions.as_ref().unwrap();
        let found = conditions.iter().find(|condition| condition.type_ == type_).unwrap();
        let since = serde_json::to_value(&found.last_transition_time).unwrap();
        (found.status.clone(), found.message.clone().unwrap(), since)
    }

    #[test]
    fn a_new_object_waits_for_its_config() {
        let machine = new_machine_config_node(&node("", ""), "infra");
        let found = serde_json::to_value(&machine).unwrap();
        assert_eq!(
            found["spec"],
            json!({"node": {"name": "n"}, "pool": {"name": "infra"},
            "configVersion": {"desired": "not-yet-set"}})
        );
        assert_eq!(
            found["metadata"]["ownerReferences"],
            json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}])
        );
        let known = new_machine_config_node(&node("v0", "v1"), "infra");
        assert_eq!(known.spec.config_version.desired, "v1");
    }

    #[test]
    fn the_first_report_names_every_phase() {
        let machine = new_machine_config_node(&node("v0", "v1"), "worker");
        let report = NodeReport {
            parent: statement(condition::UPDATE_EXECUTED, ConditionStatus::Unknown, "p"),
            child: Some(statement(condition::CORDONED, ConditionStatus::True, "c")),
        };
        let status = apply_report(&machine, &node("v0", "v1"), &report, &time(1)).unwrap();
        let conditions = status.conditions.as_ref().unwrap();
        assert_eq!(conditions.len(), CONDITIONS.len());
        assert_eq!(conditions[0].type_, condition::UPDATE_EXECUTED);
        assert_eq!(conditions[1].type_, condition::CORDONED);
        let (truth, message, _) = condition_of(&status, condition::DRAINED);
        assert_eq!(truth, "False");
        assert_eq!(message, "This node has not yet entered the Drained phase");
        assert_eq!(conditions[2].reason.as_deref(), Some("NotYetOccurred"));
        let version = serde_json::to_value(&status.config_version).unwrap();
        assert_eq!(version, json!({"current": "v0", "desired": "v1"}));
        assert_eq!(status.observed_generation, Some(1));
    }

    #[test]
    fn later_reports_change_only_what_is_new() {
        let mut machine = new_machine_config_node(&node("v0", "v1"), "worker");
        let mut step = |report: &NodeReport, node: &Node, second: u32| {
            let status = apply_report(&machine, node, report, &time(second));
            if let Some(status) = &status {
                machine.status = Some(status.clone());
            }
            status
        };
        let moving = node("v0", "v1");
        let prepared = alone(condition::UPDATE_PREPARED, ConditionStatus::Unknown, "looking");
        let status = step(&prepared, &moving, 1).unwrap();
        assert_eq!(status.config_version.unwrap().desired, "not-yet-set");
        let prepared = alone(condition::UPDATE_PREPARED, ConditionStatus::True, "possible");
        let status = step(&prepared, &moving, 2).unwrap();
        assert_eq!(status.config_version.unwrap().desired, "v1");
        // An unchanged phase is not written, even with another child.
        assert_eq!(step(&prepared, &moving, 3), None);
        let mut again = prepared.clone();
        again.child = Some(statement(condition::CORDONED, ConditionStatus::True, "c"));
        assert_eq!(step(&again, &moving, 3), None);
        let drained = NodeReport {
            parent: statement(condition::UPDATE_EXECUTED, ConditionStatus::Unknown, "draining"),
            child: Some(statement(condition::DRAINED, ConditionStatus::True, "drained")),
        };
        let status = step(&drained, &moving, 4).unwrap();
        assert_eq!(condition_of(&status, condition::DRAINED).2, "2026-11-15T10:00:04Z");
        assert_eq!(condition_of(&status, condition::UPDATE_PREPARED).2, "2026-11-15T10:00:02Z");
        // A phase about pinned images is written if another field changed.
        let pinned =
            alone(condition::PINNED_IMAGE_SETS_PROGRESSING, ConditionStatus::False, "all there");
        assert!(step(&pinned, &moving, 5).is_some());
        assert_eq!(step(&pinned, &moving, 6), None);
        assert!(step(&pinned, &node("v1", "v1"), 6).is_some());
        // The update has finished: the steps become history.
        let updated = alone(condition::UPDATED, ConditionStatus::True, "Node n Updated");
        let status = step(&updated, &node("v1", "v1"), 7).unwrap();
        let history = "Action during update to v1: drained";
        assert_eq!(condition_of(&status, condition::DRAINED).0, "False");
        assert_eq!(condition_of(&status, condition::DRAINED).1, history);
        assert_eq!(condition_of(&status, condition::UPDATED).0, "True");
        let never = condition_of(&status, condition::REBOOTED_NODE).1;
        assert_eq!(never, "This node has not yet entered the RebootedNode phase");
    }

    #[test]
    fn history_names_the_image_when_there_is_one() {
        let mut machine = new_machine_config_node(&node("v0", "v1"), "worker");
        assert_eq!(update_name(&machine), "v1");
        machine.spec.config_image =
            Some(serde_json::from_value(json!({"desiredImage": "reg/os@sha256:1"})).unwrap());
        assert_eq!(update_name(&machine), "reg/os@sha256:1");
        machine.status = Some(
            serde_json::from_value(json!({"configImage": {"currentImage": "reg/os@sha256:1"}}))
                .unwrap(),
        );
        assert_eq!(update_name(&machine), "v1");
        machine.spec.config_image = None;
        assert_eq!(update_name(&machine), "disable image mode");
    }
}
