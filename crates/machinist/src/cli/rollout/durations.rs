//! Since when a machine waits, and when a rollout ends, as far as the objects show.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_core::api::names::annotation::machinist;
use machinist_core::api::names::condition::{node as step, pool as condition};
use machinist_core::api::{Condition, MachineConfigNode, MachineConfigPool, find_condition};
use machinist_core::node::NodeView;
use machinist_core::rollout::{WaitReason, estimate};
use serde::Serialize;

/// When a rollout ends, estimated from the machines that have finished.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::cli) struct RolloutEstimate {
    /// The remaining seconds.
    pub(super) seconds: u64,
    /// The expected end.
    pub(super) end: Time,
}

fn pool_conditions(pool: &MachineConfigPool) -> &[Condition] {
    pool.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

fn steps(machine: &MachineConfigNode) -> &[Condition] {
    machine.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// The last transition of a condition, if it is true.
fn true_since(conditions: &[Condition], type_: &str) -> Option<Time> {
    let found = find_condition(conditions, type_).filter(|condition| condition.is_true());
    found.and_then(|condition| condition.last_transition_time.as_ref().cloned())
}

/// Since when a pool is updating or updated.
pub(super) fn pool_since(pool: &MachineConfigPool) -> Option<Time> {
    let conditions = pool_conditions(pool);
    true_since(conditions, condition::UPDATING)
        .or_else(|| true_since(conditions, condition::UPDATED))
}

/// Since when a machine waits for what it waits for.
pub(super) fn machine_since(
    pool: &MachineConfigPool,
    view: NodeView<'_>,
    machine: Option<&MachineConfigNode>,
    waiting: Option<&WaitReason>,
) -> Option<Time> {
    let steps = machine.map(steps).unwrap_or_default();
    let in_progress_since = || {
        let open = steps.iter().filter(|step| step.status == "Unknown");
        open.filter_map(|step| step.last_transition_time.as_ref()).max().cloned()
    };
    match waiting? {
        WaitReason::Draining { .. } => {
            let started = view.annotation(machinist::DRAIN_STARTED).and_then(|t| t.parse().ok());
            started.map(Time).or_else(in_progress_since)
        }
        WaitReason::Working { .. }
        | WaitReason::RestartPending { .. }
        | WaitReason::Superseded { .. } => in_progress_since(),
        WaitReason::Failing { .. } | WaitReason::Drifted { .. } | WaitReason::Degraded { .. } => {
            true_since(steps, step::NODE_DEGRADED)
        }
        WaitReason::Held { .. } | WaitReason::Refused { .. } => None,
        WaitReason::NotReady { .. } => not_ready_since(view),
        WaitReason::PoolPaused
        | WaitReason::NothingRendered
        | WaitReason::NoCapacity { .. }
        | WaitReason::NotItsTurn { .. }
        | WaitReason::OutsideWindow { .. }
        | WaitReason::Canary { .. }
        | WaitReason::Soaking { .. }
        | WaitReason::Image { .. }
        | WaitReason::Observing { .. }
        | WaitReason::BadConfig { .. } => true_since(pool_conditions(pool), condition::UPDATING),
    }
}

fn not_ready_since(view: NodeView<'_>) -> Option<Time> {
    let conditions = view.0.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|one| one.type_ == "Ready" && one.status != "True");
    ready.next().and_then(|one| one.last_transition_time.clone())
}

/// The message of the MachineConfigNode about an unfinished drain. It names the pods that block it.
pub(super) fn drain_message(machine: &MachineConfigNode) -> Option<String> {
    let executed = find_condition(steps(machine), step::UPDATE_EXECUTED)?;
    executed.message.clone().filter(|message| executed.status == "Unknown" && !message.is_empty())
}

/// When the rollout of a pool ends.
pub(super) fn estimate_end(
    machines: &BTreeMap<String, &MachineConfigNode>,
    pool: &MachineConfigPool,
    members: &[&Node],
    max_unavailable: i64,
    now: &Time,
) -> Option<RolloutEstimate> {
    let target = pool.spec.configuration.as_ref().and_then(|c| c.name.as_deref())?;
    let start = true_since(pool_conditions(pool), condition::UPDATING)?;
    let views = members.iter().map(|node| NodeView(node));
    let (updated, rest): (Vec<_>, Vec<_>) = views.partition(|view| view.is_updated_to(target));
    let ends = updated
        .iter()
        .filter_map(|view| machines.get(view.name()))
        .filter(|machine| machine.spec.config_version.desired == target)
        .filter_map(|machine| finished_at(machine));
    let capacity = usize::try_from(max_unavailable).unwrap_or_default();
    let spans = spans(&start, ends.filter(|end| *end > start).collect(), capacity);
    let left: Duration = estimate(&spans, rest.len(), capacity)?;
    let end = Time(now.0.checked_add(left).ok()?);
    Some(RolloutEstimate { seconds: left.as_secs(), end })
}

/// When a machine finished its last update.
fn finished_at(machine: &MachineConfigNode) -> Option<Time> {
    let ends = [step::UPDATED, step::UPDATE_COMPLETE, step::UNCORDONED];
    ends.iter().filter_map(|type_| true_since(steps(machine), type_)).max()
}

/// Start and end of each update. The objects do not record starts, but a machine starts when another one
/// ends: the first `capacity` machines started with the rollout, and each later one when the machine
/// `capacity` places before it ended.
fn spans(start: &Time, mut ends: Vec<Time>, capacity: usize) -> Vec<(Time, Time)> {
    ends.sort();
    let begin = |index: usize| match index.checked_sub(capacity) {
        Some(before) if capacity > 0 => ends[before].clone(),
        _ => start.clone(),
    };
    ends.iter().enumerate().map(|(index, end)| (begin(index), end.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(minute: u32) -> Time {
        serde_json::from_value(json!(format!("2026-11-15T10:{minute:02}:00Z"))).unwrap()
    }

    #[test]
    fn a_machine_starts_when_another_one_ends() {
        let ends = || vec![at(9), at(4), at(5), at(8)];
        let expected = [(at(0), at(4)), (at(0), at(5)), (at(4), at(8)), (at(5), at(9))];
        assert_eq!(spans(&at(0), ends(), 2), expected);
        assert_eq!(spans(&at(0), ends(), 1)[1], (at(4), at(5)));
        assert_eq!(spans(&at(0), vec![], 2), []);
    }
}
