//! Pools and machines that are only observed.

use super::*;
use crate::api::names::annotation::DESIRED_DRAIN;

fn observing(would: &str) -> WaitReason {
    WaitReason::Observing { would: would.to_owned() }
}

#[test]
fn an_observed_pool_changes_nothing_until_it_is_enforced() {
    let mut simulation = PoolSimulation::new(2, &json!({ours::MODE: "observe"}));
    simulation.set("a", &[(ours::OBSERVATION, "v1 would change nothing")]);
    let decision = simulation.step();
    assert!(decision.next.is_empty() && decision.memory.is_empty());
    assert_eq!(decision.waiting["a"], observing("v1 would change nothing"));
    assert_eq!(decision.waiting["b"], observing(""));
    let machines = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(decision.halted, Some(RolloutHalted::Observing { machines }));
    let nodes: Vec<&Node> = simulation.nodes.iter().collect();
    let status = pool_status(&simulation.pool, &nodes, &[], None, &simulation.now);
    let conditions = status.conditions.unwrap();
    let updating = conditions.iter().find(|condition| condition.type_ == "Updating").unwrap();
    assert_eq!(updating.status, "False");
    assert_eq!(
        updating.message.as_deref(),
        Some("Pool is observed; will not update to MachineConfig v1")
    );
    simulation.pool.metadata.annotations = None;
    assert_eq!(simulation.step().next, ["a", "b"]);
}

#[test]
fn one_machine_is_enforced_before_its_pool_and_one_is_held_back() {
    let mut simulation = PoolSimulation::new(3, &json!({ours::MODE: "observe"}));
    simulation.set("b", &[(ours::MODE, "enforce")]);
    assert_eq!(simulation.decide().next, ["b"]);
    simulation.pool.metadata.annotations = None;
    simulation.set("a", &[(ours::MODE, "observe")]);
    simulation.set("c", &[(ours::MODE, "obsrve")]);
    let decision = simulation.step();
    assert_eq!(decision.next, ["b"]);
    assert_eq!(decision.halted, None);
    // A mode that nobody understands must not change a machine.
    assert_eq!(decision.waiting["c"], observing(""));
    simulation.finish("b");
    assert!(matches!(simulation.decide().halted, Some(RolloutHalted::Observing { .. })));
}

/// Removes an annotation of all machines.
fn clear(simulation: &mut PoolSimulation, key: &str) {
    for node in &mut simulation.nodes {
        node.metadata.annotations.get_or_insert_default().remove(key);
    }
}

/// Whichever of the two ends first, the other one still keeps the config from the machine.
#[test]
fn a_machine_that_is_observed_and_held_waits_for_both() {
    for first in [ours::MODE, ours::HOLD] {
        let mut simulation = PoolSimulation::new(1, &json!({}));
        simulation.set("a", &[(ours::MODE, "observe"), (ours::HOLD, "tests")]);
        assert!(simulation.decide().next.is_empty());
        let left = if first == ours::MODE { ours::HOLD } else { ours::MODE };
        clear(&mut simulation, first);
        assert!(simulation.decide().next.is_empty(), "{first}");
        clear(&mut simulation, left);
        assert_eq!(simulation.decide().next, ["a"], "{first}");
    }
}

#[test]
fn a_machine_that_is_observed_during_its_drain_is_taken_out_of_it() {
    let mut simulation = PoolSimulation::new(2, &json!({}));
    simulation.max = 1;
    assert_eq!(simulation.step().next, ["a"]);
    simulation.set("a", &[(DESIRED_DRAIN, "drain-v1"), (ours::MODE, "observe")]);
    let decision = simulation.decide();
    assert_eq!((decision.withdraw.as_slice(), decision.next.len()), (&["a".to_owned()][..], 0));
    assert_eq!(decision.waiting["a"], observing(""));
    // It is drained and may be writing: what has begun is completed.
    simulation.set("a", &[(LAST_APPLIED_DRAIN, "drain-v1")]);
    assert!(simulation.decide().withdraw.is_empty());
}
