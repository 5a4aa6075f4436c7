//! Simulated rollouts with machines that are held, asked to reboot, or show an old failure.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{RolloutDecision, RolloutHalted, RolloutPolicy, decide_rollout};
use crate::api::MachineConfigPool;
use crate::api::names::annotation::machinist as ours;
use crate::api::names::annotation::{CURRENT_CONFIG, DESIRED_CONFIG, REASON, STATE};
use crate::rollout::WaitReason;

fn node(name: &str, current: &str, desired: &str, state: &str, more: &Value) -> Node {
    let mut annotations = json!({CURRENT_CONFIG: current, DESIRED_CONFIG: desired, STATE: state});
    for (key, value) in more.as_object().into_iter().flatten() {
        annotations[key] = value.clone();
    }
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": annotations},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap()
}

fn decide(nodes: &[Node], annotations: &Value, paused: bool) -> RolloutDecision {
    let pool: MachineConfigPool = serde_json::from_value(json!({
        "metadata": {"name": "worker", "annotations": annotations},
        "spec": {"configuration": {"name": "new"}, "paused": paused},
    }))
    .unwrap();
    let nodes: Vec<&Node> = nodes.iter().collect();
    let policy = RolloutPolicy::from_annotations(&pool).unwrap();
    // A Sunday.
    let now = Time("2026-11-15T12:00:00Z".parse().unwrap());
    decide_rollout(&pool, &nodes, &policy, 1, &now)
}

#[test]
fn a_held_machine_is_left_alone_and_the_others_go_on() {
    let hold = json!({ours::HOLD: "a disk is replaced"});
    let nodes = [
        node("a", "old", "old", "Done", &hold),
        node("b", "old", "old", "Done", &json!({})),
        node("c", "new", "new", "Done", &hold),
    ];
    let decision = decide(&nodes, &json!({}), false);
    assert_eq!(decision.next, ["b"]);
    let because = "a disk is replaced".to_owned();
    assert_eq!(decision.waiting["a"], WaitReason::Held { because });
    // A held machine with the config waits for nothing.
    assert!(!decision.waiting.contains_key("c"));
    // Neither a pending reboot nor a failed drain is a reason to touch it.
    let pending = json!({ours::HOLD: "", ours::REBOOT_PENDING: "new"});
    let nodes = [node("a", "old", "new", "Working", &pending)];
    let decision = decide(&nodes, &json!({}), false);
    assert!(decision.restart.is_empty() && decision.next.is_empty());
    assert_eq!(decision.waiting["a"], WaitReason::Held { because: String::new() });
}

#[test]
fn a_requested_reboot_needs_capacity_and_nothing_else() {
    let asked = json!({ours::REBOOT_REQUESTED: "now", ours::REBOOT_PENDING: "new"});
    let nodes = [
        node("a", "new", "new", "Working", &asked),
        node("b", "new", "new", "Working", &asked),
        node("c", "new", "new", "Done", &json!({})),
    ];
    let closed = json!({ours::MAINTENANCE_WINDOW: "Mon 02:00-03:00 UTC", ours::REBOOT: "deferred"});
    for (annotations, paused) in [(json!({}), false), (closed, false), (json!({}), true)] {
        let decision = decide(&nodes, &annotations, paused);
        assert_eq!(decision.restart, ["a"], "{annotations} {paused}");
        assert!(matches!(decision.waiting["b"], WaitReason::NoCapacity { .. }));
    }
    let bad = decide(&nodes, &json!({ours::BAD_CONFIGS: "new"}), false);
    assert!(bad.restart.is_empty());
}

#[test]
fn the_failure_on_an_earlier_config_does_not_count_against_a_fix() {
    let failed = |on: &str| json!({REASON: "disk full", ours::FAILED_CONFIG: on});
    let strict = json!({ours::MAX_FAILURES: "0"});
    let fixed = [node("a", "old", "new", "Degraded", &failed("bad"))];
    let decision = decide(&fixed, &strict, false);
    assert_eq!(decision.halted, None);
    assert_eq!(decision.waiting["a"], WaitReason::Working { state: "Degraded".to_owned() });
    let again = [node("a", "old", "new", "Degraded", &failed("new"))];
    let decision = decide(&again, &strict, false);
    assert!(matches!(decision.halted, Some(RolloutHalted::BadConfig { .. })));
    assert_eq!(decision.waiting["a"], WaitReason::Failing { message: "disk full".to_owned() });
}

#[test]
fn drift_names_its_paths_and_other_trouble_its_message() {
    let paths = r#"[{"path":"/etc/motd","kind":"content"}]"#;
    let drifted = json!({ours::DRIFTED: paths, REASON: "content mismatch"});
    let nodes = [
        node("a", "new", "new", "Degraded", &drifted),
        node("b", "old", "new", "Degraded", &drifted),
        node("c", "new", "new", "Degraded", &json!({REASON: "set aside"})),
        node("d", "old", "old", "Done", &json!({})),
    ];
    let decision = decide(&nodes, &json!({}), false);
    for name in ["a", "b"] {
        let WaitReason::Drifted { paths } = &decision.waiting[name] else { panic!("{name}") };
        assert_eq!(paths[0].path, "/etc/motd");
    }
    assert_eq!(decision.waiting["c"], WaitReason::Degraded { message: "set aside".to_owned() });
}

#[test]
fn a_machine_is_named_once_and_never_waits_for_itself() {
    let nodes = [
        node("a", "old", "other", "Working", &json!({})),
        node("b", "old", "old", "Done", &json!({})),
    ];
    let decision = decide(&nodes, &json!({}), false);
    assert_eq!(decision.waiting["a"], WaitReason::Superseded { config: "other".to_owned() });
    let away = vec!["a".to_owned()].into();
    assert_eq!(decision.waiting["b"], WaitReason::NoCapacity { max_unavailable: 1, away });
    // Not ready and failing at once: it uses capacity twice, as in MCO, and is named once.
    let mut failing = node("a", "old", "new", "Degraded", &json!({}));
    failing.status = None;
    failing.spec = serde_json::from_value(json!({"unschedulable": true})).unwrap();
    let decision = decide(&[failing, nodes[1].clone()], &json!({}), false);
    let away = vec!["a".to_owned()].into();
    assert_eq!(decision.waiting["b"], WaitReason::NoCapacity { max_unavailable: 1, away });
}
