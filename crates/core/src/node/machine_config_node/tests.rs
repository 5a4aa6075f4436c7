//! Tests of `machine_config_node`: tables of inputs and what must come out.

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
