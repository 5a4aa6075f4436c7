//! The progress of a pool as data: a pure function of a snapshot of the API server.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use machinist_core::api::names::condition::pool as condition;
use machinist_core::api::{MachineConfig, MachineConfigNode, MachineConfigPool, find_condition};
use machinist_core::daemon::annotations;
use machinist_core::node::NodeView;
use machinist_core::plan::host_refusals;
use machinist_core::reconcile_check::ValidationOverrides;
use machinist_core::render::reconcile::{PoolRollback, ReconcileError, RenderInputs, reconcile};
use machinist_core::rollout::{
    PoolLayering, RolloutDecision, RolloutHalted, RolloutPolicy, WaitReason,
    decide_layered_rollout, max_unavailable, nodes_of,
};
use serde::Serialize;

use super::durations::{self, RolloutEstimate};
use crate::cli::cluster::snapshot::ClusterSnapshot;

/// The state of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) enum PoolState {
    /// All machines have the config, and the status of the pool confirms it.
    Updated,
    /// Machines are updating.
    Updating,
    /// The MachineConfigs have changed, and the pool does not have the new rendered config yet.
    Rendering,
    /// The pool is paused while machines wait.
    Paused,
    /// The rollout waits for a maintenance window, a soak time or an administrator.
    Halted,
    /// Machines failed, drifted or are held, and nothing more happens before an administrator acts.
    Stuck,
    /// The config or the settings of the pool are invalid: an administrator must act.
    #[serde(rename = "bad")]
    Invalid,
    /// There is nothing to roll out.
    Empty,
}

/// The number of machines by state. Each machine is counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct MachineCounts {
    pub(in crate::cli) total: usize,
    /// Machines with the config that are ready.
    pub(in crate::cli) updated: usize,
    /// Machines that are updating.
    pub(in crate::cli) working: usize,
    /// Machines that wait for permission to reboot.
    #[serde(rename = "restartPending")]
    pub(in crate::cli) reboot_pending: usize,
    /// Machines that failed on the config, or are degraded with it.
    #[serde(rename = "failing")]
    pub(in crate::cli) degraded: usize,
    /// Machines without the config that an administrator holds.
    pub(in crate::cli) held: usize,
    /// Machines that are not ready, with or without the config.
    pub(in crate::cli) not_ready: usize,
    /// Machines that have not been assigned the config.
    pub(in crate::cli) waiting: usize,
}

impl MachineCounts {
    /// Whether machines do not go on by themselves.
    fn waits_for_someone(self) -> bool {
        self.reboot_pending + self.degraded + self.not_ready > 0
    }
}

/// A machine that is not up to date.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::cli) struct PendingMachine {
    pub(in crate::cli) machine: String,
    /// What it waits for; none if it gets the config or the permission to reboot now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) waiting: Option<WaitReason>,
    /// What blocks its drain, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) drain: Option<String>,
    /// Since when, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) since: Option<Time>,
}

/// The progress of a pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct PoolReport {
    pub(in crate::cli) pool: String,
    pub(in crate::cli) state: PoolState,
    /// The config that its machines should have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) target: Option<String>,
    /// Since when it is updating, or updated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) since: Option<Time>,
    /// The config that the pool was rolled back from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) rolled_back_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) max_unavailable: Option<i64>,
    pub(in crate::cli) machines: MachineCounts,
    /// The machines that are not up to date, by name.
    pub(in crate::cli) pending: Vec<PendingMachine>,
    /// Why the whole rollout is stopped, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) halted: Option<RolloutHalted>,
    /// What an administrator must correct before the rollout continues.
    pub(in crate::cli) problems: Vec<String>,
    /// Why machines that may belong to the pool are not in it.
    pub(in crate::cli) warnings: Vec<String>,
    /// When it ends, if that can be estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) estimate: Option<RolloutEstimate>,
}

impl PoolReport {
    /// Whether waiting is pointless: the rollout is complete, or a bad config stopped it and no machine is
    /// updating any more, or only an administrator can help.
    pub(in crate::cli) fn is_settled(&self) -> bool {
        match self.state {
            PoolState::Updated | PoolState::Empty | PoolState::Stuck => true,
            PoolState::Invalid => self.machines.working == 0,
            PoolState::Updating | PoolState::Rendering | PoolState::Paused | PoolState::Halted => {
                false
            }
        }
    }
}

/// The progress of a pool.
pub(in crate::cli) fn report(
    snapshot: &ClusterSnapshot,
    pool: &MachineConfigPool,
    now: &Time,
) -> PoolReport {
    let (members, errors) = nodes_of(pool, &snapshot.pools, &snapshot.nodes);
    let name = pool.name_any();
    let errors = errors.iter().filter(|error| error.concerns(&name));
    let warnings: BTreeSet<String> = errors.map(ToString::to_string).collect();
    // A user that sees only parts of the MachineConfigs cannot know what becomes of them.
    let is_partial = !snapshot.hidden.is_empty();
    let sources = if is_partial { SourceState::default() } else { sources(snapshot, pool) };
    let report = with_sources(snapshot, pool, &members, sources, now);
    PoolReport { warnings: warnings.into_iter().collect(), ..report }
}

/// The progress of a pool, given the state of its MachineConfigs.
pub(in crate::cli) fn with_sources(
    snapshot: &ClusterSnapshot,
    pool: &MachineConfigPool,
    members: &[&Node],
    sources: SourceState,
    now: &Time,
) -> PoolReport {
    let target = pool.spec.configuration.as_ref().and_then(|c| c.name.as_deref());
    let target = target.unwrap_or_default();
    let mut problems: Vec<String> = sources.problem.into_iter().collect();
    let max = max_unavailable(pool, members.len());
    let policy = RolloutPolicy::from_annotations(pool);
    problems.extend(max.as_ref().err().map(ToString::to_string));
    problems.extend(policy.as_ref().err().map(ToString::to_string));
    let decision = match (&max, &policy) {
        (Ok(max), Ok(policy)) => {
            let (images, builds): (Vec<_>, Vec<_>) =
                (snapshot.os_configs.iter().collect(), snapshot.os_builds.iter().collect());
            let layering = PoolLayering::for_pool(pool, &images, &builds);
            let find =
                |name: &str| snapshot.configs.iter().find(|config| config.name_any() == name);
            let refused = host_refusals(members, find(target), find);
            let policy = RolloutPolicy { refused, ..policy.clone() };
            decide_layered_rollout(layering.target(pool), pool, members, &policy, *max, now)
                .waiting_for_image(layering.wait_reason())
        }
        _ => RolloutDecision::default(),
    };
    let mut counts = MachineCounts { total: members.len(), ..MachineCounts::default() };
    let mut pending = Vec::new();
    let machines = &snapshot.machine_config_nodes;
    let machines: BTreeMap<String, &MachineConfigNode> =
        machines.iter().map(|machine| (machine.name_any(), machine)).collect();
    for node in members {
        count_machine(&mut counts, NodeView(node), target);
        let machine = machines.get(NodeView(node).name()).copied();
        pending.extend(pending_machine(pool, node, machine, target, &decision));
    }
    pending.sort_by(|a, b| a.machine.cmp(&b.machine));
    let is_bad_config = matches!(decision.halted, Some(RolloutHalted::BadConfig { .. }));
    let state = if !problems.is_empty() || is_bad_config {
        PoolState::Invalid
    } else if sources.is_ahead {
        PoolState::Rendering
    } else if target.is_empty() {
        PoolState::Empty
    } else if counts.updated == counts.total && status_confirms(pool, target) {
        PoolState::Updated
    } else if pool.spec.paused == Some(true) && counts.updated < counts.total {
        PoolState::Paused
    } else if decision.halted.is_some() {
        PoolState::Halted
    } else if is_stuck(members, &decision) {
        PoolState::Stuck
    } else {
        PoolState::Updating
    };
    let estimate = match (state, &max) {
        // A machine that waits for a person makes the end unknown.
        (PoolState::Updating, Ok(max)) if !counts.waits_for_someone() && !is_blocked(pool) => {
            durations::estimate_end(&machines, pool, members, *max, now)
        }
        _ => None,
    };
    PoolReport {
        pool: pool.name_any(),
        state,
        target: Some(target.to_owned()).filter(|target| !target.is_empty()),
        since: durations::pool_since(pool),
        rolled_back_from: PoolRollback::from_annotations(pool).map(|rollback| rollback.from),
        max_unavailable: max.ok(),
        machines: counts,
        pending,
        halted: decision.halted,
        problems,
        warnings: Vec::new(),
        estimate,
    }
}

/// The MachineConfigs of a pool, compared with its rendered config.
#[derive(Debug, Default)]
pub(in crate::cli) struct SourceState {
    /// The controller is about to give the pool another config.
    pub(in crate::cli) is_ahead: bool,
    /// The MachineConfigs cannot be rendered.
    pub(in crate::cli) problem: Option<String>,
}

fn sources(snapshot: &ClusterSnapshot, pool: &MachineConfigPool) -> SourceState {
    let configs: Vec<&MachineConfig> = snapshot.configs.iter().collect();
    let inputs = RenderInputs {
        pool,
        machine_configs: &configs,
        system: snapshot.image_inputs(),
        version: "",
        overrides: ValidationOverrides::default(),
    };
    match reconcile(&inputs) {
        Ok(changes) => {
            let name = changes.set_configuration.and_then(|point| point.name);
            let now = pool.spec.configuration.as_ref().and_then(|c| c.name.clone());
            SourceState { is_ahead: name.is_some() && name != now, problem: None }
        }
        Err(ReconcileError::NotYet(_) | ReconcileError::NothingToRender(_)) => {
            SourceState { is_ahead: false, problem: None }
        }
        Err(error) => SourceState { is_ahead: false, problem: Some(error.to_string()) },
    }
}

/// Whether nothing more happens before an administrator acts: machines failed, drifted or are held, and all
/// others have the config or wait for these.
fn is_stuck(members: &[&Node], decision: &RolloutDecision) -> bool {
    let acts = !decision.next.is_empty() || !decision.restart.is_empty() || decision.wake.is_some();
    // A machine that has not tried yet what was asked of it shows an old verdict.
    let is_stale = |view: NodeView<'_>| view.has_open_request() || view.has_stale_failure();
    if acts || members.iter().any(|node| is_stale(NodeView(node))) {
        return false;
    }
    let mut needs_person = false;
    for reason in decision.waiting.values() {
        match reason {
            WaitReason::Failing { .. }
            | WaitReason::Drifted { .. }
            | WaitReason::Degraded { .. }
            | WaitReason::Refused { .. }
            | WaitReason::Held { .. } => needs_person = true,
            WaitReason::NoCapacity { .. }
            | WaitReason::NotItsTurn { .. }
            | WaitReason::Canary { .. }
            | WaitReason::RestartPending { opens: None } => {}
            _ => return false,
        }
    }
    needs_person
}

/// Whether the controller reports that machines, pods or budgets block the rollout.
fn is_blocked(pool: &MachineConfigPool) -> bool {
    let conditions = pool.status.as_ref().and_then(|status| status.conditions.as_deref());
    find_condition(conditions.unwrap_or_default(), condition::ROLLOUT_BLOCKED)
        .is_some_and(machinist_core::api::Condition::is_true)
}

/// Whether the status of the pool confirms the update: other readers of the pool must see the same.
fn status_confirms(pool: &MachineConfigPool, target: &str) -> bool {
    let Some(status) = &pool.status else { return false };
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let updated = find_condition(conditions, condition::UPDATED);
    let current =
        status.configuration.as_ref().and_then(|configuration| configuration.name.as_deref());
    updated.is_some_and(machinist_core::api::Condition::is_true) && current == Some(target)
}

fn count_machine(counts: &mut MachineCounts, view: NodeView<'_>, target: &str) {
    let is_ready = view.not_ready().is_none();
    let is_degraded = view.is_degraded() && !view.has_stale_failure();
    let counter = if view.held().is_some() && !view.is_updated_to(target) {
        &mut counts.held
    } else if view.is_updated_to(target) {
        if is_ready { &mut counts.updated } else { &mut counts.not_ready }
    } else if view.needs_target(target) {
        if is_ready { &mut counts.waiting } else { &mut counts.not_ready }
    } else if is_degraded {
        &mut counts.degraded
    } else if view.awaits_reboot() {
        &mut counts.reboot_pending
    } else {
        &mut counts.working
    };
    *counter += 1;
}

/// The entry for a machine, unless it is up to date.
fn pending_machine(
    pool: &MachineConfigPool,
    node: &Node,
    machine: Option<&MachineConfigNode>,
    target: &str,
    decision: &RolloutDecision,
) -> Option<PendingMachine> {
    let view = NodeView(node);
    if view.is_updated_to(target) && view.not_ready().is_none() {
        return None;
    }
    let mut waiting = decision.waiting.get(view.name()).cloned();
    let acts_now = decision.next.iter().chain(&decision.restart).any(|name| name == view.name());
    // Without a decision, the problem with the pool is the reason.
    if waiting.is_none() && !acts_now {
        return None;
    }
    let mut drain = None;
    if matches!(waiting, Some(WaitReason::Working { .. })) && annotations::is_draining(view) {
        waiting = Some(WaitReason::Draining { blockers: Vec::new() });
        drain = machine.and_then(durations::drain_message);
    }
    let since = durations::machine_since(pool, view, machine, waiting.as_ref());
    Some(PendingMachine { machine: view.name().to_owned(), waiting, drain, since })
}
