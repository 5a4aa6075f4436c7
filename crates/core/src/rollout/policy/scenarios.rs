//! Simulated rollouts under a policy.

mod no_cost;
mod observe;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{RolloutDecision, RolloutHalted, RolloutPolicy, decide_rollout};
use crate::api::MachineConfigPool;
use crate::api::names::annotation::machinist as ours;
use crate::api::names::annotation::{
    CURRENT_CONFIG, DESIRED_CONFIG, LAST_APPLIED_DRAIN, REASON, STATE,
};
use crate::node::NodeView;
use crate::rollout::{WaitReason, pool_status};

fn time(text: &str) -> Time {
    Time(text.parse().unwrap())
}

/// Machines `a`, `b`, … of one pool that is updated to `v1`, three at a time.
struct PoolSimulation {
    pool: MachineConfigPool,
    nodes: Vec<Node>,
    now: Time,
    max: i64,
}

impl PoolSimulation {
    fn new(machines: usize, annotations: &Value) -> Self {
        let pool = serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "worker", "annotations": annotations},
            "spec": {"configuration": {"name": "v1"}}
        }))
        .unwrap();
        let node = |index: usize| {
            let name = char::from(b'a' + u8::try_from(index).unwrap()).to_string();
            serde_json::from_value(json!({
                "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:{index:02}Z"),
                    "annotations": {CURRENT_CONFIG: "v0", DESIRED_CONFIG: "v0", STATE: "Done"}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}
            }))
            .unwrap()
        };
        // 2026-11-15 is a Sunday.
        let nodes = (0..machines).map(node).collect();
        Self { pool, nodes, now: time("2026-11-15T12:00:00Z"), max: 3 }
    }

    fn decide(&self) -> RolloutDecision {
        let nodes: Vec<&Node> = self.nodes.iter().collect();
        let policy = RolloutPolicy::from_annotations(&self.pool).unwrap();
        decide_rollout(&self.pool, &nodes, &policy, self.max, &self.now)
    }

    /// Decides and applies the decision.
    fn step(&mut self) -> RolloutDecision {
        let decision = self.decide();
        let annotations = self.pool.metadata.annotations.get_or_insert_default();
        for (key, value) in &decision.memory {
            match value {
                Some(value) => annotations.insert(key.clone(), value.clone()),
                None => annotations.remove(key),
            };
        }
        for name in &decision.next {
            self.set(name, &[(DESIRED_CONFIG, "v1"), (STATE, "Working")]);
        }
        for name in &decision.restart {
            self.set(name, &[(ours::REBOOT_APPROVED, "v1")]);
        }
        decision
    }

    fn set(&mut self, name: &str, annotations: &[(&str, &str)]) {
        let node = self.nodes.iter_mut().find(|node| NodeView(node).name() == name).unwrap();
        for (key, value) in annotations {
            let all = node.metadata.annotations.get_or_insert_default();
            all.insert((*key).to_owned(), (*value).to_owned());
        }
    }

    fn finish(&mut self, name: &str) {
        self.set(name, &[(CURRENT_CONFIG, "v1"), (STATE, "Done")]);
    }

    fn fail(&mut self, name: &str) {
        self.set(name, &[(STATE, "Degraded"), (REASON, "no space")]);
    }

    fn applied(&mut self, name: &str) {
        self.set(name, &[(ours::REBOOT_PENDING, "v1")]);
    }

    fn ready(&mut self, name: &str, ready: bool) {
        let node = self.nodes.iter_mut().find(|node| NodeView(node).name() == name).unwrap();
        let status = if ready { "True" } else { "False" };
        node.status =
            serde_json::from_value(json!({"conditions": [{"type": "Ready", "status": status}]}))
                .unwrap();
    }

    fn pool_annotation(&self, key: &str) -> Option<&str> {
        self.pool.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

fn canary(machines: &[&str]) -> WaitReason {
    let names: Vec<String> = machines.iter().map(|name| (*name).to_owned()).collect();
    WaitReason::Canary { machines: names.into() }
}

#[test]
fn canaries_go_first_and_have_to_stay_healthy() {
    let mut simulation =
        PoolSimulation::new(5, &json!({ours::CANARY: "2", ours::CANARY_SOAK: "30m"}));
    let decision = simulation.step();
    assert_eq!(decision.next, ["a", "b"]);
    assert_eq!(decision.waiting["c"], canary(&["a", "b"]));
    assert_eq!((decision.halted, decision.wake), (None, None));
    simulation.finish("a");
    assert_eq!(simulation.step().waiting["c"], canary(&["b"]));
    simulation.finish("b");
    let until = time("2026-11-15T12:30:00Z");
    let decision = simulation.step();
    assert!(decision.next.is_empty());
    assert_eq!(decision.halted, Some(RolloutHalted::Soaking { until: until.clone() }));
    assert_eq!(decision.waiting["e"], WaitReason::Soaking { until: until.clone() });
    assert_eq!(decision.wake, Some(until));
    let state = "v1 soaking 2026-11-15T12:00:00Z";
    assert_eq!(simulation.pool_annotation(ours::CANARY_STATE), Some(state));
    // No annotation changes while it soaks.
    simulation.now = time("2026-11-15T12:10:00Z");
    assert!(simulation.step().memory.is_empty());
    // A canary becomes unhealthy: the soak time starts over when it recovers.
    simulation.ready("b", false);
    assert_eq!(simulation.step().waiting["c"], canary(&["b"]));
    assert_eq!(simulation.pool_annotation(ours::CANARY_STATE), None);
    simulation.ready("b", true);
    simulation.now = time("2026-11-15T12:20:00Z");
    assert_eq!(simulation.step().wake, Some(time("2026-11-15T12:50:00Z")));
    simulation.now = time("2026-11-15T12:50:00Z");
    assert_eq!(simulation.step().next, ["c", "d", "e"]);
    assert_eq!(simulation.pool_annotation(ours::CANARY_STATE), Some("v1 passed"));
    // From here on there are no restrictions.
    simulation.finish("d");
    simulation.fail("a");
    assert!(simulation.step().memory.is_empty());
}

#[test]
fn a_soak_time_in_the_future_does_not_count() {
    let state = "v1 soaking 2026-11-15T23:00:00Z";
    let annotations =
        json!({ours::CANARY: "1", ours::CANARY_SOAK: "30m", ours::CANARY_STATE: state});
    let mut simulation = PoolSimulation::new(2, &annotations);
    simulation.set("a", &[(DESIRED_CONFIG, "v1")]);
    simulation.finish("a");
    assert_eq!(simulation.step().wake, Some(time("2026-11-15T12:30:00Z")));
    let state = "v1 soaking 2026-11-15T12:00:00Z";
    assert_eq!(simulation.pool_annotation(ours::CANARY_STATE), Some(state));
}

#[test]
fn a_failing_canary_stops_the_others() {
    let mut simulation = PoolSimulation::new(3, &json!({ours::CANARY: "1"}));
    assert_eq!(simulation.step().next, ["a"]);
    simulation.fail("a");
    let decision = simulation.step();
    assert!(decision.next.is_empty());
    assert_eq!(decision.waiting["b"], canary(&["a"]));
    // Without a soak time the others follow at once.
    simulation.finish("a");
    assert_eq!(simulation.step().next, ["b", "c"]);
}

#[test]
fn a_config_that_all_machines_had_needs_no_canary() {
    let mut simulation =
        PoolSimulation::new(3, &json!({ours::CANARY: "1", ours::CANARY_SOAK: "1h"}));
    simulation.pool.status =
        serde_json::from_value(json!({"configuration": {"name": "v1"}})).unwrap();
    assert_eq!(simulation.step().next, ["a", "b", "c"]);
}

#[test]
fn machines_are_updated_only_in_the_window() {
    let window = json!({ours::MAINTENANCE_WINDOW: "Sun 13:00-14:00 UTC"});
    let mut simulation = PoolSimulation::new(5, &window);
    let opens = time("2026-11-15T13:00:00Z");
    let decision = simulation.step();
    assert!(decision.next.is_empty());
    assert_eq!(decision.waiting["a"], WaitReason::OutsideWindow { opens: opens.clone() });
    assert_eq!(decision.halted, Some(RolloutHalted::OutsideWindow { opens: opens.clone() }));
    assert_eq!(decision.wake, Some(opens.clone()));
    simulation.now = opens;
    let decision = simulation.step();
    assert_eq!(decision.next, ["a", "b", "c"]);
    assert_eq!(decision.wake, Some(time("2026-11-15T14:00:00Z")));
    simulation.now = time("2026-11-15T14:00:00Z");
    simulation.finish("a");
    let decision = simulation.step();
    assert!(decision.next.is_empty());
    assert_eq!(decision.wake, Some(time("2026-11-22T13:00:00Z")));
    // A finished rollout has no recheck time.
    for name in ["a", "b", "c", "d", "e"] {
        simulation.set(name, &[(DESIRED_CONFIG, "v1")]);
        simulation.finish(name);
    }
    assert_eq!(simulation.step(), RolloutDecision::default());
}

#[test]
fn deferred_reboots_wait_for_the_window_or_an_approval() {
    let deferred = json!({ours::REBOOT: "deferred", ours::MAINTENANCE_WINDOW: "13:00-14:00 UTC"});
    let mut simulation = PoolSimulation::new(5, &deferred);
    // The change is applied outside the window too. Machines that await a reboot are available, so
    // others follow.
    assert_eq!(simulation.step().next, ["a", "b", "c"]);
    assert!(matches!(simulation.step().waiting["d"], WaitReason::NoCapacity { .. }));
    for name in ["a", "b", "c"] {
        simulation.applied(name);
    }
    let opens = time("2026-11-15T13:00:00Z");
    let decision = simulation.step();
    assert_eq!(decision.next, ["d", "e"]);
    assert_eq!(decision.waiting["a"], WaitReason::RestartPending { opens: Some(opens.clone()) });
    assert_eq!(decision.halted, None);
    simulation.applied("d");
    simulation.applied("e");
    let decision = simulation.step();
    assert_eq!(decision.halted, Some(RolloutHalted::OutsideWindow { opens: opens.clone() }));
    assert_eq!(decision.wake, Some(opens.clone()));
    let nodes: Vec<&Node> = simulation.nodes.iter().collect();
    let status = pool_status(&simulation.pool, &nodes, &[], None, &simulation.now);
    assert_eq!(status.unavailable_machine_count, Some(0));
    assert_eq!(status.updated_machine_count, Some(0));
    let conditions = status.conditions.unwrap();
    let updating = conditions.iter().find(|condition| condition.type_ == "Updating").unwrap();
    assert_eq!(
        updating.message.as_deref(),
        Some(
            "All nodes are updating to MachineConfig v1; waiting for a restart: 5 (a, b, c, d, e)"
        )
    );
    // An administrator approves one reboot: the machine is unavailable.
    simulation.set("e", &[(ours::REBOOT_APPROVED, "v1")]);
    assert!(matches!(simulation.decide().waiting["e"], WaitReason::Working { .. }));
    // In the window, as many reboot as may be unavailable.
    simulation.now = opens;
    let decision = simulation.step();
    assert_eq!(decision.restart, ["a", "b"]);
    assert!(matches!(decision.waiting["c"], WaitReason::NoCapacity { .. }));
    simulation.finish("a");
    assert_eq!(simulation.step().restart, ["c"]);
}

#[test]
fn without_a_window_reboots_need_an_approval() {
    let mut simulation = PoolSimulation::new(2, &json!({ours::REBOOT: "deferred"}));
    assert_eq!(simulation.step().next, ["a", "b"]);
    simulation.applied("a");
    simulation.applied("b");
    let decision = simulation.step();
    assert!(decision.restart.is_empty());
    assert_eq!(decision.waiting["a"], WaitReason::RestartPending { opens: None });
    let machines = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(decision.halted, Some(RolloutHalted::RestartsPending { machines }));
    // The policy changes to immediate: waiting machines reboot, but not in a paused pool.
    simulation.pool.metadata.annotations = None;
    simulation.max = 1;
    simulation.pool.spec.paused = Some(true);
    assert!(simulation.step().restart.is_empty());
    simulation.pool.spec.paused = None;
    assert_eq!(simulation.step().restart, ["a"]);
}

#[test]
fn a_failed_machine_is_not_rebooted() {
    let mut simulation = PoolSimulation::new(1, &json!({}));
    simulation.step();
    simulation.applied("a");
    simulation.fail("a");
    let decision = simulation.step();
    assert!(decision.restart.is_empty());
    assert!(matches!(decision.waiting["a"], WaitReason::Failing { .. }));
}

#[test]
fn an_approval_for_another_config_does_not_count() {
    let mut simulation = PoolSimulation::new(1, &json!({ours::REBOOT: "deferred"}));
    simulation.step();
    simulation.applied("a");
    simulation.set("a", &[(ours::REBOOT_APPROVED, "v0")]);
    assert!(matches!(simulation.decide().waiting["a"], WaitReason::RestartPending { .. }));
    // The pool moves to the next config: no reboot for the old one.
    simulation.pool.spec.configuration.as_mut().unwrap().name = Some("v2".to_owned());
    assert_eq!(simulation.decide().next, ["a"]);
}

#[test]
fn too_many_failures_stop_a_rollout_until_the_config_is_unlisted() {
    let mut simulation =
        PoolSimulation::new(6, &json!({ours::MAX_FAILURES: "1", ours::BAD_CONFIGS: "v9"}));
    assert_eq!(simulation.step().next, ["a", "b", "c"]);
    simulation.fail("a");
    simulation.finish("b");
    assert_eq!(simulation.step().next, ["d"]);
    simulation.fail("c");
    let decision = simulation.step();
    let failed = vec!["a".to_owned(), "c".to_owned()];
    let bad = RolloutHalted::BadConfig { config: "v1".to_owned(), failed };
    assert!(decision.next.is_empty());
    assert_eq!(decision.halted.as_ref(), Some(&bad));
    assert_eq!(decision.waiting["e"], WaitReason::BadConfig { config: "v1".to_owned() });
    assert_eq!(simulation.pool_annotation(ours::BAD_CONFIGS), Some("v1,v9"));
    // It stays bad when machines recover, and nothing is written again.
    simulation.finish("a");
    simulation.finish("d");
    let decision = simulation.step();
    assert!(decision.next.is_empty() && decision.memory.is_empty());
    // An administrator removes it from the list: earlier failures do not count.
    simulation.fail("a");
    simulation.set("e", &[(DESIRED_CONFIG, "v0")]);
    let annotations = simulation.pool.metadata.annotations.as_mut().unwrap();
    annotations.insert(ours::BAD_CONFIGS.to_owned(), "v9".to_owned());
    simulation.max = 4;
    assert_eq!(simulation.step().next, ["e", "f"]);
    simulation.fail("e");
    assert_eq!(simulation.step().halted, None);
    simulation.fail("f");
    assert!(matches!(simulation.step().halted, Some(RolloutHalted::BadConfig { .. })));
}

#[test]
fn the_first_failure_stops_a_rollout_that_allows_none() {
    let mut simulation = PoolSimulation::new(3, &json!({ours::MAX_FAILURES: "0"}));
    simulation.max = 1;
    assert_eq!(simulation.step().next, ["a"]);
    simulation.fail("a");
    assert!(matches!(simulation.step().halted, Some(RolloutHalted::BadConfig { .. })));
    // Another config is not affected.
    simulation.pool.spec.configuration.as_mut().unwrap().name = Some("v2".to_owned());
    assert_eq!(simulation.decide().next, ["a"]);
}

#[test]
fn a_stranded_machine_gets_the_next_config() {
    let mut simulation = PoolSimulation::new(3, &json!({}));
    simulation.max = 1;
    assert_eq!(simulation.step().next, ["a"]);
    simulation.fail("a");
    // It is drained, and the limit is reached.
    simulation.nodes[0].spec.get_or_insert_default().unschedulable = Some(true);
    let drained = |config: &str| (LAST_APPLIED_DRAIN.to_owned(), format!("drain-{config}"));
    let annotations = simulation.nodes[0].metadata.annotations.get_or_insert_default();
    annotations.extend([drained("v1")]);
    assert_eq!(simulation.decide().next, [""; 0]);
    // The bad config is replaced.
    simulation.pool.spec.configuration.as_mut().unwrap().name = Some("v0".to_owned());
    assert_eq!(simulation.decide().next, ["a"]);
    // A machine that an administrator cordoned is not touched.
    let annotations = simulation.nodes[0].metadata.annotations.get_or_insert_default();
    annotations.extend([drained("v0")]);
    assert_eq!(simulation.decide().next, [""; 0]);
}

#[test]
fn a_pool_without_policy_respects_max_unavailable() {
    let mut simulation = PoolSimulation::new(5, &json!({}));
    for (max, go) in [(-1, 0), (1, 1), (3, 3), (9, 5)] {
        simulation.max = max;
        let decision = simulation.decide();
        assert_eq!(decision.next, ["a", "b", "c", "d", "e"][..go], "at most {max}");
        assert_eq!(decision.waiting.len(), 5 - go, "at most {max}");
        assert!(decision.memory.is_empty() && decision.restart.is_empty());
        assert_eq!((decision.halted, decision.wake), (None, None));
    }
}

#[test]
fn reasons_are_serialized_with_their_names() {
    let opens = time("2026-11-15T13:00:00Z");
    for (waiting, expected) in [
        (
            WaitReason::NoCapacity { max_unavailable: 1, away: vec!["a".to_owned()].into() },
            json!({"reason": "noCapacity", "maxUnavailable": 1, "away": ["a"]}),
        ),
        (
            WaitReason::OutsideWindow { opens: opens.clone() },
            json!({"reason": "outsideWindow", "opens": "2026-11-15T13:00:00Z"}),
        ),
        (canary(&["a"]), json!({"reason": "canary", "machines": ["a"]})),
        (WaitReason::RestartPending { opens: None }, json!({"reason": "restartPending"})),
    ] {
        assert_eq!(serde_json::to_value(&waiting).unwrap(), expected);
    }
}
