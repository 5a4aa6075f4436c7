//! Properties of the rollout over random pools, machines, failures and edits: the pool's limit
//! holds at every step, a paused pool gets no new target, the same input gives the same decision,
//! and a healthy pool always finishes.
use crate::support;

use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfigPool;
use machinist_core::api::names::annotation::{CURRENT_CONFIG, DESIRED_CONFIG, STATE};
use machinist_core::node::NodeView;
use machinist_core::rollout::{
    RolloutDecision, RolloutPolicy, decide_rollout, max_unavailable, pool_status,
};
use serde_json::{Value, json};
use support::{Rng, seed};

/// The decision with the default policy.
fn decide(pool: &MachineConfigPool, nodes: &[&Node], max: i64) -> RolloutDecision {
    let now = serde_json::from_value(json!("2026-11-15T00:00:00Z")).unwrap();
    decide_rollout(pool, nodes, &RolloutPolicy::default(), max, &now)
}

fn pool(target: &str, max: &Value) -> MachineConfigPool {
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"},
        "spec": {"configuration": {"name": target}, "maxUnavailable": max}
    }))
    .unwrap()
}

fn machine(rng: &mut Rng, index: usize) -> Node {
    let zone = *rng.pick(&["", "north", "south"]);
    let labels =
        if zone.is_empty() { json!({}) } else { json!({"topology.kubernetes.io/zone": zone}) };
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("node-{index:02}"), "labels": labels,
            "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", rng.below(60)),
            "annotations": {CURRENT_CONFIG: "v0", DESIRED_CONFIG: "v0", STATE: "Done"}
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}
    }))
    .unwrap()
}

fn set(node: &mut Node, key: &str, value: &str) {
    node.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

fn set_ready(node: &mut Node, ready: bool) {
    let status = if ready { "True" } else { "False" };
    node.status =
        serde_json::from_value(json!({"conditions": [{"type": "Ready", "status": status}]}))
            .unwrap();
}

/// One step of a machine and its daemon.
fn run_daemon(rng: &mut Rng, node: &mut Node, failures: bool) {
    let view = NodeView(node);
    let (current, desired) = (view.current_config().to_owned(), view.desired_config().to_owned());
    let state = view.state().to_owned();
    let ready = view.not_ready().is_none();
    match state.as_str() {
        "Done" if current != desired && rng.chance(1, 2) => set(node, STATE, "Working"),
        "Working" if !ready && rng.chance(1, 2) => {
            set_ready(node, true);
            set(node, CURRENT_CONFIG, &desired);
            set(node, STATE, "Done");
        }
        "Working" if ready && failures && rng.chance(1, 12) => set(node, STATE, "Degraded"),
        "Working" if ready && rng.chance(1, 2) => set_ready(node, false), // it reboots
        "Degraded" if failures && rng.chance(1, 8) => set(node, STATE, "Working"),
        "Done" if failures && rng.chance(1, 40) => set_ready(node, !ready),
        _ => {}
    }
}

#[test]
fn the_limit_holds_and_healthy_pools_finish() {
    let seed = seed();
    eprintln!("MACHINIST_SEED={seed:#x}");
    let mut rng = Rng::new(seed);
    for run in 0..120 {
        let failures = run % 2 == 1;
        let size = 1 + rng.below(20);
        let mut nodes: Vec<Node> = (0..size).map(|index| machine(&mut rng, index)).collect();
        let limits = [json!(1), json!(2), json!(5), json!("10%"), json!("50%"), json!(null)];
        let mut pool = pool("v1", rng.pick(&limits));
        let mut finished = false;
        for step in 0..400 {
            if failures && rng.chance(1, 30) {
                let target = pool.spec.configuration.get_or_insert_default();
                target.name = Some(format!("v{}", 1 + rng.below(4)));
            }
            pool.spec.paused = Some(failures && rng.chance(1, 5));
            let views: Vec<&Node> = nodes.iter().collect();
            let max = max_unavailable(&pool, size).unwrap();
            let choice = decide(&pool, &views, max);
            assert_eq!(choice, decide(&pool, &views, max), "the same input, another decision");
            let away = views.iter().filter(|node| NodeView(node).is_unavailable()).count();
            let target = pool.spec.configuration.clone().unwrap().name.unwrap();
            if pool.spec.paused == Some(true) {
                assert!(choice.next.is_empty(), "a paused pool gave out a target");
            }
            if !choice.next.is_empty() {
                let limit = usize::try_from(max).unwrap();
                assert!(
                    away + choice.next.len() <= limit,
                    "seed {seed:#x} run {run} step {step}: {away} away, {:?} go, at most {limit}",
                    choice.next
                );
            }
            for name in &choice.next {
                let chosen = nodes.iter_mut().find(|node| NodeView(node).name() == name).unwrap();
                set(chosen, DESIRED_CONFIG, &target);
                if NodeView(chosen).is_degraded() {
                    set(chosen, STATE, "Working");
                }
            }
            for node in &mut nodes {
                run_daemon(&mut rng, node, failures);
            }
            let views: Vec<&Node> = nodes.iter().collect();
            let now = serde_json::from_value(json!("2026-11-15T00:00:00Z")).unwrap();
            let status = pool_status(&pool, &views, &[], None, &now);
            if status.updated_machine_count == status.machine_count {
                finished = true;
                if !failures {
                    break;
                }
            }
        }
        assert!(failures || finished, "seed {seed:#x} run {run}: a healthy pool did not finish");
    }
}

/// Every machine without the target either gets it now or has a reason to wait.
#[test]
fn no_machine_waits_without_a_reason() {
    let mut rng = Rng::new(seed());
    for _ in 0..500 {
        let size = 1 + rng.below(12);
        let mut nodes: Vec<Node> = (0..size).map(|index| machine(&mut rng, index)).collect();
        for node in &mut nodes {
            let (current, desired) = (*rng.pick(&["v0", "v1"]), *rng.pick(&["v0", "v1"]));
            let state = *rng.pick(&["Done", "Done", "Working", "Degraded", ""]);
            set(node, CURRENT_CONFIG, current);
            set(node, DESIRED_CONFIG, desired);
            set(node, STATE, state);
            set_ready(node, rng.chance(4, 5));
        }
        let pool = pool("v1", &json!(1 + rng.below(4)));
        let views: Vec<&Node> = nodes.iter().collect();
        let max = max_unavailable(&pool, size).unwrap();
        let choice = decide(&pool, &views, max);
        for view in views.iter().map(|node| NodeView(node)) {
            let name = view.name().to_owned();
            let there = view.is_updated_to("v1") && view.not_ready().is_none();
            let explained = choice.next.contains(&name) != choice.waiting.contains_key(&name);
            assert!(there || explained, "{name}: {choice:?}");
        }
    }
}
