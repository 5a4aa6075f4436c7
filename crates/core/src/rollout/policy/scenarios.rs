//! Rollouts under a policy, step by step.

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

/// Machines `a`, `b`, … of one pool that goes to `v1`, three at a time.
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

    /// Decides, and does what the decision says.
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
fn a_few_go_first_and_have_to_stay_well() {
    let mut world = PoolSimulation::new(5, &json!({ours::CANARY: "2", ours::CANARY_SOAK: "30m"}));
    let decision = world.step();
    assert_eq!(decision.next, ["a", "b"]);
    assert_eq!(decision.waiting["c"], canary(&["a", "b"]));
    assert_eq!((decision.halted, decision.wake), (None, None));
    world.finish("a");
    assert_eq!(world.step().waiting["c"], canary(&["b"]));
    world.finish("b");
    let until = time("2026-11-15T12:30:00Z");
    let decision = world.step();
    assert!(decision.next.is_empty());
    assert_eq!(decision.halted, Some(RolloutHalted::Soaking { until: until.clone() }));
    assert_eq!(decision.waiting["e"], WaitReason::Soaking { until: until.clone() });
    assert_eq!(decision.wake, Some(until));
    let state = "v1 soaking 2026-11-15T12:00:00Z";
    assert_eq!(world.pool_annotation(ours::CANARY_STATE), Some(state));
    // Nothing new to remember while it soaks.
    world.now = time("2026-11-15T12:10:00Z");
    assert!(world.step().memory.is_empty());
    // One of them is not well: the time starts again when it is.
    world.ready("b", false);
    assert_eq!(world.step().waiting["c"], canary(&["b"]));
    assert_eq!(world.pool_annotation(ours::CANARY_STATE), None);
    world.ready("b", true);
    world.now = time("2026-11-15T12:20:00Z");
    assert_eq!(world.step().wake, Some(time("2026-11-15T12:50:00Z")));
    world.now = time("2026-11-15T12:50:00Z");
    assert_eq!(world.step().next, ["c", "d", "e"]);
    assert_eq!(world.pool_annotation(ours::CANARY_STATE), Some("v1 passed"));
    // From here on it is a rollout like any other.
    world.finish("d");
    world.fail("a");
    assert!(world.step().memory.is_empty());
}

#[test]
fn a_clock_that_was_ahead_proves_nothing() {
    let state = "v1 soaking 2026-11-15T23:00:00Z";
    let annotations =
        json!({ours::CANARY: "1", ours::CANARY_SOAK: "30m", ours::CANARY_STATE: state});
    let mut world = PoolSimulation::new(2, &annotations);
    world.set("a", &[(DESIRED_CONFIG, "v1")]);
    world.finish("a");
    assert_eq!(world.step().wake, Some(time("2026-11-15T12:30:00Z")));
    let state = "v1 soaking 2026-11-15T12:00:00Z";
    assert_eq!(world.pool_annotation(ours::CANARY_STATE), Some(state));
}

#[test]
fn a_canary_that_fails_keeps_the_others() {
    let mut world = PoolSimulation::new(3, &json!({ours::CANARY: "1"}));
    assert_eq!(world.step().next, ["a"]);
    world.fail("a");
    let decision = world.step();
    assert!(decision.next.is_empty());
    assert_eq!(decision.waiting["b"], canary(&["a"]));
    // Without a time to soak the others follow at once.
    world.finish("a");
    assert_eq!(world.step().next, ["b", "c"]);
}

#[test]
fn a_config_that_all_had_needs_no_canary() {
    let mut world = PoolSimulation::new(3, &json!({ours::CANARY: "1", ours::CANARY_SOAK: "1h"}));
    world.pool.status = serde_json::from_value(json!({"configuration": {"name": "v1"}})).unwrap();
    assert_eq!(world.step().next, ["a", "b", "c"]);
}

#[test]
fn machines_go_in_the_window_only() {
    let window = json!({ours::MAINTENANCE_WINDOW: "Sun 13:00-14:00 UTC"});
    let mut world = PoolSimulation::new(5, &window);
    let opens = time("2026-11-15T13:00:00Z");
    let decision = world.step();
    assert!(decision.next.is_empty());
    assert_eq!(decision.waiting["a"], WaitReason::OutsideWindow { opens: opens.clone() });
    assert_eq!(decision.halted, Some(RolloutHalted::OutsideWindow { opens: opens.clone() }));
    assert_eq!(decision.wake, Some(opens.clone()));
    world.now = opens;
    let decision = world.step();
    assert_eq!(decision.next, ["a", "b", "c"]);
    assert_eq!(decision.wake, Some(time("2026-11-15T14:00:00Z")));
    world.now = time("2026-11-15T14:00:00Z");
    world.finish("a");
    let decision = world.step();
    assert!(decision.next.is_empty());
    assert_eq!(decision.wake, Some(time("2026-11-22T13:00:00Z")));
    // When all is done, nobody needs to be woken.
    for name in ["a", "b", "c", "d", "e"] {
        world.set(name, &[(DESIRED_CONFIG, "v1")]);
        world.finish(name);
    }
    assert_eq!(world.step(), RolloutDecision::default());
}

#[test]
fn deferred_restarts_wait_for_the_window_or_a_person() {
    let deferred = json!({ours::REBOOT: "deferred", ours::MAINTENANCE_WINDOW: "13:00-14:00 UTC"});
    let mut world = PoolSimulation::new(5, &deferred);
    // The change is made at any hour; who has made it is not away, and so others follow.
    assert_eq!(world.step().next, ["a", "b", "c"]);
    assert!(matches!(world.step().waiting["d"], WaitReason::NoCapacity { .. }));
    for name in ["a", "b", "c"] {
        world.applied(name);
    }
    let opens = time("2026-11-15T13:00:00Z");
    let decision = world.step();
    assert_eq!(decision.next, ["d", "e"]);
    assert_eq!(decision.waiting["a"], WaitReason::RestartPending { opens: Some(opens.clone()) });
    assert_eq!(decision.halted, None);
    world.applied("d");
    world.applied("e");
    let decision = world.step();
    assert_eq!(decision.halted, Some(RolloutHalted::OutsideWindow { opens: opens.clone() }));
    assert_eq!(decision.wake, Some(opens.clone()));
    let nodes: Vec<&Node> = world.nodes.iter().collect();
    let status = pool_status(&world.pool, &nodes, &[], None, &world.now);
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
    // A person lets one go: it is away.
    world.set("e", &[(ours::REBOOT_APPROVED, "v1")]);
    assert!(matches!(world.decide().waiting["e"], WaitReason::Working { .. }));
    // In the window, as many go as may be away.
    world.now = opens;
    let decision = world.step();
    assert_eq!(decision.restart, ["a", "b"]);
    assert!(matches!(decision.waiting["c"], WaitReason::NoCapacity { .. }));
    world.finish("a");
    assert_eq!(world.step().restart, ["c"]);
}

#[test]
fn without_a_window_only_a_person_allows_restarts() {
    let mut world = PoolSimulation::new(2, &json!({ours::REBOOT: "deferred"}));
    assert_eq!(world.step().next, ["a", "b"]);
    world.applied("a");
    world.applied("b");
    let decision = world.step();
    assert!(decision.restart.is_empty());
    assert_eq!(decision.waiting["a"], WaitReason::RestartPending { opens: None });
    let machines = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(decision.halted, Some(RolloutHalted::RestartsPending { machines }));
    // Somebody changes the policy: who waits may go, but not in a paused pool.
    world.pool.metadata.annotations = None;
    world.max = 1;
    world.pool.spec.paused = Some(true);
    assert!(world.step().restart.is_empty());
    world.pool.spec.paused = None;
    assert_eq!(world.step().restart, ["a"]);
}

#[test]
fn who_has_failed_is_not_restarted() {
    let mut world = PoolSimulation::new(1, &json!({}));
    world.step();
    world.applied("a");
    world.fail("a");
    let decision = world.step();
    assert!(decision.restart.is_empty());
    assert!(matches!(decision.waiting["a"], WaitReason::Failing { .. }));
}

#[test]
fn a_permission_for_another_config_is_none() {
    let mut world = PoolSimulation::new(1, &json!({ours::REBOOT: "deferred"}));
    world.step();
    world.applied("a");
    world.set("a", &[(ours::REBOOT_APPROVED, "v0")]);
    assert!(matches!(world.decide().waiting["a"], WaitReason::RestartPending { .. }));
    // The pool goes on to the next config: no restart for the old one.
    world.pool.spec.configuration.as_mut().unwrap().name = Some("v2".to_owned());
    assert_eq!(world.decide().next, ["a"]);
}

#[test]
fn too_many_failures_end_a_rollout_until_a_person_says_otherwise() {
    let mut world =
        PoolSimulation::new(6, &json!({ours::MAX_FAILURES: "1", ours::BAD_CONFIGS: "v9"}));
    assert_eq!(world.step().next, ["a", "b", "c"]);
    world.fail("a");
    world.finish("b");
    assert_eq!(world.step().next, ["d"]);
    world.fail("c");
    let decision = world.step();
    let failed = vec!["a".to_owned(), "c".to_owned()];
    let bad = RolloutHalted::BadConfig { config: "v1".to_owned(), failed };
    assert!(decision.next.is_empty());
    assert_eq!(decision.halted.as_ref(), Some(&bad));
    assert_eq!(decision.waiting["e"], WaitReason::BadConfig { config: "v1".to_owned() });
    assert_eq!(world.pool_annotation(ours::BAD_CONFIGS), Some("v1,v9"));
    // It stays bad when machines recover, and nothing is written again.
    world.finish("a");
    world.finish("d");
    let decision = world.step();
    assert!(decision.next.is_empty() && decision.memory.is_empty());
    // A person takes it out of the list: who failed then is not counted again.
    world.fail("a");
    world.set("e", &[(DESIRED_CONFIG, "v0")]);
    let annotations = world.pool.metadata.annotations.as_mut().unwrap();
    annotations.insert(ours::BAD_CONFIGS.to_owned(), "v9".to_owned());
    world.max = 4;
    assert_eq!(world.step().next, ["e", "f"]);
    world.fail("e");
    assert_eq!(world.step().halted, None);
    world.fail("f");
    assert!(matches!(world.step().halted, Some(RolloutHalted::BadConfig { .. })));
}

#[test]
fn the_first_failure_ends_it_when_none_is_allowed() {
    let mut world = PoolSimulation::new(3, &json!({ours::MAX_FAILURES: "0"}));
    world.max = 1;
    assert_eq!(world.step().next, ["a"]);
    world.fail("a");
    assert!(matches!(world.step().halted, Some(RolloutHalted::BadConfig { .. })));
    // Another config is another chance.
    world.pool.spec.configuration.as_mut().unwrap().name = Some("v2".to_owned());
    assert_eq!(world.decide().next, ["a"]);
}

#[test]
fn a_machine_that_was_emptied_in_vain_gets_the_next_config() {
    let mut world = PoolSimulation::new(3, &json!({}));
    world.max = 1;
    assert_eq!(world.step().next, ["a"]);
    world.fail("a");
    // It is empty, and nobody else may go.
    world.nodes[0].spec.get_or_insert_default().unschedulable = Some(true);
    let drained = |config: &str| (LAST_APPLIED_DRAIN.to_owned(), format!("drain-{config}"));
    let annotations = world.nodes[0].metadata.annotations.get_or_insert_default();
    annotations.extend([drained("v1")]);
    assert_eq!(world.decide().next, [""; 0]);
    // The bad config is taken away.
    world.pool.spec.configuration.as_mut().unwrap().name = Some("v0".to_owned());
    assert_eq!(world.decide().next, ["a"]);
    // Whoever was cordoned by a person stays so.
    let annotations = world.nodes[0].metadata.annotations.get_or_insert_default();
    annotations.extend([drained("v0")]);
    assert_eq!(world.decide().next, [""; 0]);
}

#[test]
fn a_pool_without_policy_is_rolled_out_as_always() {
    let mut world = PoolSimulation::new(5, &json!({}));
    for (max, go) in [(-1, 0), (1, 1), (3, 3), (9, 5)] {
        world.max = max;
        let decision = world.decide();
        assert_eq!(decision.next, ["a", "b", "c", "d", "e"][..go], "at most {max}");
        assert_eq!(decision.waiting.len(), 5 - go, "at most {max}");
        assert!(decision.memory.is_empty() && decision.restart.is_empty());
        assert_eq!((decision.halted, decision.wake), (None, None));
    }
}

#[test]
fn reasons_are_serialised_with_their_names() {
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
