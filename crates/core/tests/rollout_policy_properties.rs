//! Rollouts under a policy in random clusters: two pools, machines with simulated daemons, and
//! administrators who pause, edit, move machines and cut the power. Whatever they do: the limit of
//! a pool holds, a paused pool gets nothing, windows, canaries and bad configs are respected, and
//! the same input gives the same decision. When they stop, every pool finishes.
mod simulated_cluster;
use crate::support;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_core::api::MachineConfigPool;
use machinist_core::api::names::annotation::machinist as ours;
use machinist_core::api::names::annotation::{DESIRED_CONFIG, STATE};
use machinist_core::node::NodeView;
use machinist_core::rollout::{RolloutDecision, RolloutPolicy, WaitReason, decide_rollout};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use simulated_cluster::{
    POLICIES, SimulatedCluster, annotation, approve_reboot, edit, is_window_open, set_ready,
    target, write,
};
use support::seed;

/// The invariants of every decision.
fn check(
    pool: &MachineConfigPool,
    members: &[&Node],
    policy: &RolloutPolicy,
    max: i64,
    now: &Time,
    decision: &RolloutDecision,
) {
    let target = target(pool);
    assert_eq!(*decision, decide_rollout(pool, members, policy, max, now), "the same input");
    let reversed: Vec<&Node> = members.iter().rev().copied().collect();
    let other = decide_rollout(pool, &reversed, policy, max, now);
    assert_eq!((&decision.next, &decision.restart), (&other.next, &other.restart), "any order");
    let given = decision.next.len() + decision.restart.len();
    let away = members.iter().filter(|node| NodeView(node).is_unavailable()).count();
    let free = usize::try_from(max).unwrap().saturating_sub(away);
    assert!(given <= free, "{away} away, at most {max}: {decision:?}");
    if pool.spec.paused == Some(true) || policy.bad_configs.contains(&target) {
        assert_eq!(given, 0, "{decision:?}");
    }
    let annotation = |key: &str| pool.metadata.annotations.as_ref()?.get(key).map(String::as_str);
    let closed = annotation(ours::MAINTENANCE_WINDOW).is_some() && !is_window_open(now.0);
    let deferred = annotation(ours::REBOOT) == Some("deferred");
    if closed {
        assert!(decision.restart.is_empty(), "{decision:?}");
        assert!(deferred || decision.next.is_empty(), "{decision:?}");
    }
    if deferred && annotation(ours::MAINTENANCE_WINDOW).is_none() {
        assert!(decision.restart.is_empty(), "{decision:?}");
    }
    let has_it = members.iter().filter(|node| !NodeView(node).needs_target(&target)).count();
    let passed = format!("{target} passed");
    let remembered = decision.memory.get(ours::CANARY_STATE);
    let state = remembered.map_or(annotation(ours::CANARY_STATE), |value| value.as_deref());
    let had = pool.status.as_ref().and_then(|status| status.configuration.clone()?.name);
    if policy.canary > 0 && state != Some(&passed) && had.as_ref() != Some(&target) {
        let most = policy.canary.saturating_sub(has_it);
        assert!(decision.next.len() <= most, "{has_it} have it: {decision:?}");
    }
    for node in members {
        let view = NodeView(node);
        let name = view.name().to_owned();
        let there = view.is_updated_to(&target) && view.not_ready().is_none();
        let explained = usize::from(decision.next.contains(&name))
            + usize::from(decision.restart.contains(&name))
            + usize::from(decision.waiting.contains_key(&name));
        assert_eq!(explained, usize::from(!there), "{name}: {decision:?}");
    }
    if let Some(wake) = &decision.wake {
        assert!(wake > now, "{decision:?}");
    }
    let ours_on_it = |node: &&Node| NodeView(node).annotation(ours::REBOOT_PENDING).is_some();
    if *policy == RolloutPolicy::default() && !members.iter().any(ours_on_it) {
        assert!(decision.memory.is_empty() && decision.wake.is_none());
    }
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 160,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed()),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_rollout_keeps_its_rules_and_ends(
        machines in 1..12_usize,
        policies in (0..POLICIES, 0..POLICIES),
        edits in proptest::collection::vec(edit(), 0..60),
        random in any::<u64>(),
    ) {
        let mut cluster = SimulatedCluster::new(machines, policies, random);
        for edit in &edits {
            cluster.edit(edit);
            cluster.reconcile_pool(0);
            cluster.reconcile_pool(1);
            cluster.run_daemons();
        }
        // The edits end; everything works from here on, and a last config arrives.
        for pool in &mut cluster.pools {
            pool.spec.paused = None;
            pool.spec.configuration.get_or_insert_default().name = Some("v9".to_owned());
        }
        for node in &mut cluster.nodes {
            set_ready(node, true);
            if annotation(node, STATE) == "Degraded" {
                write(node, STATE, Some("Working"));
            }
        }
        for _ in 0..1000 {
            let decisions = [cluster.reconcile_pool(0), cluster.reconcile_pool(1)];
            let lives = cluster.run_daemons();
            let is_idle = decisions.iter().all(|d| d.next.is_empty() && d.restart.is_empty());
            if cluster.is_finished() {
                break;
            }
            if is_idle && !lives {
                let wakes = decisions.iter().filter_map(|decision| decision.wake.clone());
                let person = decisions.iter().flat_map(|decision| &decision.waiting);
                let person = person
                    .filter(|(_, reason)| **reason == WaitReason::RestartPending { opens: None })
                    .map(|(name, _)| name)
                    .next();
                match (wakes.min(), person) {
                    (_, Some(name)) => {
                        let find = |node: &&mut Node| NodeView(node).name() == name;
                        approve_reboot(cluster.nodes.iter_mut().find(find).unwrap());
                    }
                    (Some(wake), None) => cluster.now = wake.0,
                    (None, None) => panic!("stuck: {decisions:#?}"),
                }
            }
        }
        prop_assert!(cluster.is_finished(), "not finished at {}", cluster.now);
    }
}

/// Checks the simulated window itself.
#[test]
fn the_simulated_window_is_open_at_the_right_times() {
    for (moment, open) in [
        ("2026-11-14T00:59:00Z", false), // Saturday
        ("2026-11-14T01:00:00Z", true),
        ("2026-11-14T05:00:00Z", false),
        ("2026-11-14T20:00:00Z", true),
        ("2026-11-15T00:30:00Z", true),
        ("2026-11-15T20:00:00Z", false),
    ] {
        assert_eq!(is_window_open(moment.parse().unwrap()), open, "{moment}");
    }
}

/// Thousands of machines share one reason to wait, instead of a copy of the names for each.
#[test]
fn many_machines_share_their_reason() {
    let mut cluster = SimulatedCluster::new(60, (0, 0), 1);
    let one = cluster.nodes[1].clone();
    cluster.nodes = (0..5000)
        .map(|index| {
            let mut node = one.clone();
            node.metadata.name = Some(format!("node-{index:04}"));
            if index < 500 {
                write(&mut node, DESIRED_CONFIG, Some("v1"));
            }
            node
        })
        .collect();
    let nodes: Vec<&Node> = cluster.nodes.iter().collect();
    let now = Time(cluster.now);
    let decision = decide_rollout(&cluster.pools[0], &nodes, &RolloutPolicy::default(), 500, &now);
    let lists: Vec<*const String> = decision
        .waiting
        .values()
        .filter_map(|reason| match reason {
            WaitReason::NoCapacity { away, .. } => Some(away.as_ptr()),
            _ => None,
        })
        .collect();
    assert_eq!(lists.len(), 4500);
    assert!(lists.iter().all(|list| *list == lists[0]));
}
