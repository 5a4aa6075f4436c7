//! Machines that get a config without using capacity: registered again, or taken out of a drain.

use super::*;

const DRAIN: &str = crate::api::names::annotation::DESIRED_DRAIN;

/// The Node is deleted and registered again: its daemon writes only the config on disk.
fn register_again(simulation: &mut PoolSimulation, name: &str, config: &str) {
    let node = simulation.nodes.iter_mut().find(|node| NodeView(node).name() == name).unwrap();
    let current = (CURRENT_CONFIG.to_owned(), config.to_owned());
    node.metadata.annotations = Some([current].into());
}

#[test]
fn a_machine_that_is_registered_again_does_not_wait_for_itself() {
    let mut simulation = PoolSimulation::new(3, &json!({}));
    simulation.max = 1;
    register_again(&mut simulation, "a", "v0");
    assert_eq!(simulation.step().next, ["a"]);
    // Once it has a target, it counts.
    let decision = simulation.decide();
    assert_eq!(decision.next, [""; 0]);
    let away = vec!["a".to_owned()].into();
    let waiting = WaitReason::NoCapacity { max_unavailable: 1, away };
    assert_eq!(decision.waiting["b"], waiting);
    // Two at once go one after the other.
    simulation.finish("a");
    register_again(&mut simulation, "b", "v0");
    register_again(&mut simulation, "c", "v0");
    assert_eq!(simulation.step().next, ["b"]);
    assert_eq!(simulation.step().next, [""; 0]);
}

#[test]
fn a_machine_that_is_registered_again_with_its_config_needs_no_capacity() {
    let mut simulation = PoolSimulation::new(
        3,
        &json!({ours::MAINTENANCE_WINDOW: "Mon 01:00-02:00 UTC", ours::CANARY: "1"}),
    );
    simulation.max = 1;
    register_again(&mut simulation, "c", "v1");
    assert_eq!(simulation.step().next, ["c"]);
    // Another config has to wait for the window, and a machine that is not ready takes capacity.
    register_again(&mut simulation, "c", "v0");
    assert_eq!(simulation.decide().next, [""; 0]);
    let mut simulation = PoolSimulation::new(2, &json!({}));
    simulation.max = 1;
    register_again(&mut simulation, "a", "v0");
    simulation.ready("a", false);
    assert_eq!(simulation.decide().next, [""; 0]);
}

#[test]
fn a_machine_without_a_daemon_is_not_assigned_a_config_ahead_of_others() {
    let mut simulation = PoolSimulation::new(2, &json!({}));
    simulation.max = 1;
    simulation.nodes[0].metadata.annotations = None;
    assert_eq!(simulation.decide().next, [""; 0]);
}

#[test]
fn a_config_that_returns_takes_a_machine_out_of_its_drain() {
    let mut simulation = PoolSimulation::new(3, &json!({}));
    simulation.max = 1;
    assert_eq!(simulation.step().next, ["a"]);
    simulation.set("a", &[(DRAIN, "drain-v1"), (LAST_APPLIED_DRAIN, "uncordon-v0")]);
    simulation.nodes[0].spec.get_or_insert_default().unschedulable = Some(true);
    let target = |simulation: &mut PoolSimulation, config: &str| {
        simulation.pool.spec.configuration.as_mut().unwrap().name = Some(config.to_owned());
        simulation.decide().next
    };
    assert_eq!(target(&mut simulation, "v0"), ["a"]);
    assert_eq!(target(&mut simulation, "v2"), ["a"]);
    // The maintenance window is closed: only the config that it runs does not disrupt it.
    let windows = (ours::MAINTENANCE_WINDOW.to_owned(), "Mon 01:00-02:00 UTC".to_owned());
    simulation.pool.metadata.annotations.get_or_insert_default().extend([windows]);
    assert_eq!(target(&mut simulation, "v0"), ["a"]);
    assert_eq!(target(&mut simulation, "v2"), [""; 0]);
    simulation.pool.spec.paused = Some(true);
    assert_eq!(target(&mut simulation, "v0"), [""; 0]);
    simulation.pool.spec.paused = None;
    // It is drained, so it may be writing.
    simulation.set("a", &[(LAST_APPLIED_DRAIN, "drain-v1")]);
    assert_eq!(target(&mut simulation, "v0"), [""; 0]);
}
