//! A small cluster for rollouts: two pools, machines whose daemons follow the node protocol, and
//! administrators who make changes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{Timestamp, ToSpan as _};
use machinist_core::api::MachineConfigPool;
use machinist_core::api::names::annotation::machinist as ours;
use machinist_core::api::names::annotation::{CURRENT_CONFIG, DESIRED_CONFIG, STATE};
use machinist_core::node::NodeView;
use machinist_core::rollout::{
    RolloutDecision, RolloutPolicy, decide_rollout, max_unavailable, nodes_of, pool_status,
};
use proptest::prelude::*;
use serde_json::json;

use super::check;
use crate::support::Rng;

const INFRA: &str = "node-role.kubernetes.io/infra";
const WORKER: &str = "node-role.kubernetes.io/worker";

/// One change by an administrator.
#[derive(Debug, Clone)]
pub(super) enum ClusterEdit {
    Pause(usize, bool),
    Max(usize, usize),
    Target(usize, usize),
    Policy(usize, usize),
    ClearBad(usize),
    MoveToOtherPool(usize),
    PowerOff(usize),
    Break(usize),
    ApproveReboot(usize),
    AdvanceTime(i64),
}

pub(super) fn edit() -> impl Strategy<Value = ClusterEdit> {
    let (pool, machine) = (0..2_usize, 0..12_usize);
    prop_oneof![
        1 => (pool.clone(), any::<bool>()).prop_map(|(pool, on)| ClusterEdit::Pause(pool, on)),
        1 => (pool.clone(), 0..LIMITS).prop_map(|(pool, max)| ClusterEdit::Max(pool, max)),
        2 => (pool.clone(), 1..5_usize).prop_map(|(pool, target)| ClusterEdit::Target(pool, target)),
        2 => (pool.clone(), 0..POLICIES).prop_map(|(pool, policy)| ClusterEdit::Policy(pool, policy)),
        1 => pool.prop_map(ClusterEdit::ClearBad),
        1 => machine.clone().prop_map(ClusterEdit::MoveToOtherPool),
        2 => machine.clone().prop_map(ClusterEdit::PowerOff),
        2 => machine.clone().prop_map(ClusterEdit::Break),
        1 => machine.prop_map(ClusterEdit::ApproveReboot),
        5 => (0..400_i64).prop_map(ClusterEdit::AdvanceTime),
    ]
}

pub(super) const LIMITS: usize = 6;
pub(super) const POLICIES: usize = 8;
const WINDOW: &str = "01:00-05:00 UTC; Sat 20:00-01:00 UTC";

/// The annotations of a pool with one of the policies.
pub(super) fn policy(index: usize) -> BTreeMap<String, String> {
    let list: &[(&str, &str)] = match index {
        0 => &[],
        1 => &[(ours::CANARY, "1"), (ours::CANARY_SOAK, "1h")],
        2 => &[(ours::CANARY, "2")],
        3 => &[(ours::MAINTENANCE_WINDOW, WINDOW)],
        4 => &[(ours::REBOOT, "deferred"), (ours::MAINTENANCE_WINDOW, WINDOW)],
        5 => &[(ours::REBOOT, "deferred"), (ours::MAX_FAILURES, "0")],
        6 => &[(ours::MAX_FAILURES, "1")],
        _ => &[
            (ours::CANARY, "2"),
            (ours::CANARY_SOAK, "30m"),
            (ours::REBOOT, "deferred"),
            (ours::MAINTENANCE_WINDOW, WINDOW),
            (ours::MAX_FAILURES, "2"),
        ],
    };
    list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Whether [`WINDOW`] is open, calculated in another way than in the code under test: counted from
/// a Saturday, 1972-01-01.
pub(super) fn is_window_open(now: Timestamp) -> bool {
    let saturday: Timestamp = "1972-01-01T00:00:00Z".parse().unwrap();
    let minutes = now.duration_since(saturday).as_mins();
    let (day, minute) = (minutes.div_euclid(1440).rem_euclid(7), minutes.rem_euclid(1440));
    (60..300).contains(&minute) || day == 0 && minute >= 1200 || day == 1 && minute < 60
}

pub(super) struct SimulatedCluster {
    pub(super) pools: Vec<MachineConfigPool>,
    pub(super) nodes: Vec<Node>,
    pub(super) now: Timestamp,
    rng: Rng,
}

pub(super) fn annotation<'a>(node: &'a Node, key: &str) -> &'a str {
    NodeView(node).annotation(key).unwrap_or_default()
}

pub(super) fn write(node: &mut Node, key: &str, value: Option<&str>) {
    let all = node.metadata.annotations.get_or_insert_default();
    match value {
        Some(value) => all.insert(key.to_owned(), value.to_owned()),
        None => all.remove(key),
    };
}

pub(super) fn set_ready(node: &mut Node, ready: bool) {
    let status = if ready { "True" } else { "False" };
    node.status =
        serde_json::from_value(json!({"conditions": [{"type": "Ready", "status": status}]}))
            .unwrap();
}

pub(super) fn target(pool: &MachineConfigPool) -> String {
    pool.spec.configuration.clone().unwrap().name.unwrap()
}

impl SimulatedCluster {
    pub(super) fn new(machines: usize, policies: (usize, usize), seed: u64) -> Self {
        let pool = |name: &str, label: &str, annotations: BTreeMap<String, String>| {
            serde_json::from_value(json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "metadata": {"name": name, "annotations": annotations},
                "spec": {"configuration": {"name": "v1"}, "maxUnavailable": 2,
                         "nodeSelector": {"matchLabels": {label: ""}}}
            }))
            .unwrap()
        };
        let node = |index: usize| {
            let mut labels = json!({WORKER: ""});
            if index.is_multiple_of(3) {
                labels[INFRA] = "".into();
            }
            if !index.is_multiple_of(4) {
                labels["topology.kubernetes.io/zone"] = format!("zone-{}", index % 2).into();
            }
            serde_json::from_value(json!({
                "metadata": {
                    "name": format!("node-{index:02}"), "labels": labels,
                    "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", 59 - index),
                    "annotations": {CURRENT_CONFIG: "v0", DESIRED_CONFIG: "v0", STATE: "Done"}
                },
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}
            }))
            .unwrap()
        };
        Self {
            pools: vec![
                pool("worker", WORKER, policy(policies.0)),
                pool("infra", INFRA, policy(policies.1)),
            ],
            nodes: (0..machines).map(node).collect(),
            now: "2026-11-13T12:00:00Z".parse().unwrap(),
            rng: Rng::new(seed),
        }
    }

    pub(super) fn edit(&mut self, edit: &ClusterEdit) {
        let count = self.nodes.len();
        let node = |index: usize| index % count;
        match *edit {
            ClusterEdit::Pause(pool, on) => self.pools[pool].spec.paused = Some(on),
            ClusterEdit::Max(pool, max) => {
                let limits =
                    [json!(1), json!(2), json!(5), json!("10%"), json!("50%"), json!(null)];
                self.pools[pool].spec.max_unavailable =
                    serde_json::from_value(limits[max].clone()).unwrap();
            }
            ClusterEdit::Target(pool, target) => {
                let configuration = self.pools[pool].spec.configuration.get_or_insert_default();
                configuration.name = Some(format!("v{target}"));
            }
            ClusterEdit::Policy(pool, index) => {
                let annotations = self.pools[pool].metadata.annotations.get_or_insert_default();
                annotations.retain(|key, _| {
                    [ours::BAD_CONFIGS, ours::CANARY_STATE, ours::FAILED_MACHINES]
                        .contains(&key.as_str())
                });
                annotations.extend(policy(index));
            }
            ClusterEdit::ClearBad(pool) => {
                let annotations = self.pools[pool].metadata.annotations.get_or_insert_default();
                annotations.remove(ours::BAD_CONFIGS);
            }
            ClusterEdit::MoveToOtherPool(index) => {
                let labels = self.nodes[node(index)].metadata.labels.get_or_insert_default();
                if labels.remove(INFRA).is_none() {
                    labels.insert(INFRA.to_owned(), String::new());
                }
            }
            ClusterEdit::PowerOff(index) => {
                let ready = NodeView(&self.nodes[node(index)]).not_ready().is_none();
                set_ready(&mut self.nodes[node(index)], !ready);
            }
            ClusterEdit::Break(index) => {
                let node = &mut self.nodes[node(index)];
                if annotation(node, STATE) == "Working" {
                    write(node, STATE, Some("Degraded"));
                }
            }
            ClusterEdit::ApproveReboot(index) => approve_reboot(&mut self.nodes[node(index)]),
            ClusterEdit::AdvanceTime(minutes) => self.now += minutes.minutes(),
        }
    }

    /// What the controller does about a pool.
    pub(super) fn reconcile_pool(&mut self, index: usize) -> RolloutDecision {
        let pool = self.pools[index].clone();
        let (members, errors) = nodes_of(&pool, &self.pools, &self.nodes);
        assert!(errors.is_empty(), "{errors:?}");
        let max = max_unavailable(&pool, members.len()).unwrap();
        let policy = RolloutPolicy::from_annotations(&pool).unwrap();
        let now = Time(self.now);
        let decision = decide_rollout(&pool, &members, &policy, max, &now);
        check(&pool, &members, &policy, max, &now, &decision);
        let annotations = self.pools[index].metadata.annotations.get_or_insert_default();
        for (key, value) in &decision.memory {
            match value {
                Some(value) => annotations.insert(key.clone(), value.clone()),
                None => annotations.remove(key),
            };
        }
        for node in &mut self.nodes {
            let name = NodeView(node).name().to_owned();
            if decision.next.contains(&name) {
                write(node, DESIRED_CONFIG, Some(&target(&pool)));
                for (key, value) in policy.node_annotations() {
                    write(node, &key, value.as_deref());
                }
            }
            if decision.restart.contains(&name) {
                write(node, ours::REBOOT_APPROVED, Some(&target(&pool)));
            }
        }
        let (members, _) = nodes_of(&pool, &self.pools, &self.nodes);
        let status = pool_status(&self.pools[index], &members, &[], None, &now);
        self.pools[index].status = Some(status);
        decision
    }

    /// What the daemons do; some are slower than others.
    pub(super) fn run_daemons(&mut self) -> bool {
        let mut changed = false;
        for node in &mut self.nodes {
            if self.rng.chance(2, 3) {
                changed |= run_daemon(node);
            } else {
                changed |= run_daemon(&mut node.clone());
            }
        }
        changed
    }

    pub(super) fn is_finished(&self) -> bool {
        self.pools.iter().all(|pool| {
            let (members, _) = nodes_of(pool, &self.pools, &self.nodes);
            members.iter().all(|node| NodeView(node).is_updated_to(&target(pool)))
        })
    }
}

/// An administrator approves a reboot that waits for it.
pub(super) fn approve_reboot(node: &mut Node) {
    if NodeView(node).awaits_reboot() {
        let desired = annotation(node, DESIRED_CONFIG).to_owned();
        write(node, ours::REBOOT_APPROVED, Some(&desired));
    }
}

/// One step of a daemon, and whether it did anything.
pub(super) fn run_daemon(node: &mut Node) -> bool {
    let view = NodeView(node);
    let (current, desired) = (view.current_config().to_owned(), view.desired_config().to_owned());
    let ready = view.not_ready().is_none();
    let deferred = annotation(node, ours::REBOOT) == "deferred";
    let allowed = annotation(node, ours::REBOOT_APPROVED) == desired;
    let applied = annotation(node, ours::REBOOT_PENDING) == desired;
    let failed_on = annotation(node, "test/failed-on").to_owned();
    match annotation(node, STATE) {
        "Done" if current != desired => write(node, STATE, Some("Working")),
        "Degraded" if failed_on.is_empty() => write(node, "test/failed-on", Some(&desired)),
        // It retries only if there is something new.
        "Degraded" if failed_on != desired => {
            write(node, "test/failed-on", None);
            write(node, STATE, Some("Working"));
        }
        "Working" if ready && deferred && !applied => {
            write(node, ours::REBOOT_PENDING, Some(&desired));
        }
        "Working" if ready && deferred && !allowed => return false,
        "Working" if ready => set_ready(node, false), // it reboots
        "Working" => {
            set_ready(node, true);
            write(node, CURRENT_CONFIG, Some(&desired));
            write(node, STATE, Some("Done"));
            write(node, ours::REBOOT_PENDING, None);
            write(node, ours::REBOOT_APPROVED, None);
        }
        _ => return false,
    }
    true
}
