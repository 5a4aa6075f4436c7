//! Whom nobody has to choose, and in which order the others go.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::api::MachineConfigPool;

use super::waiting::WaitReason;
use crate::node::{NodeView, RolloutTarget};

/// The config that the pool's machines are to have.
pub(super) fn target_of(pool: &MachineConfigPool) -> &str {
    let configuration = pool.spec.configuration.as_ref();
    configuration.and_then(|configuration| configuration.name.as_deref()).unwrap_or_default()
}

/// Machines that nobody has to choose: they have the target and work on it, failed on it, or are
/// not ready to be given it.
pub(super) fn already_targeted(
    views: &[NodeView<'_>],
    goal: RolloutTarget<'_>,
) -> BTreeMap<String, WaitReason> {
    let mut waiting = BTreeMap::new();
    for view in views {
        let reason = if view.needs_target(goal) {
            view.not_ready().map(|because| WaitReason::NotReady { because })
        } else if view.is_failing() {
            Some(WaitReason::Failing { message: view.reason().to_owned() })
        } else if view.awaits_reboot() && view.not_ready().is_none() {
            Some(WaitReason::RestartPending { opens: None })
        } else if !view.is_done() {
            Some(WaitReason::Working { state: view.state().to_owned() })
        } else {
            view.not_ready().map(|because| WaitReason::NotReady { because })
        };
        if let Some(reason) = reason {
            waiting.insert(view.name().to_owned(), reason);
        }
    }
    waiting
}

/// Zones by name, machines without one last; within a zone the oldest first.
pub(super) fn by_zone_then_age(a: &NodeView<'_>, b: &NodeView<'_>) -> Ordering {
    let by_age = || a.created().map(|time| &time.0).cmp(&b.created().map(|time| &time.0));
    match (a.zone(), b.zone()) {
        (Some(a), Some(b)) => a.cmp(b).then_with(by_age),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => by_age(),
    }
}
