//! The machines that need no new target, and the order of the others.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::waiting::WaitReason;
use crate::api::names::{annotation, state};
use crate::node::{NodeView, NotReady, RolloutTarget};

/// Why a machine is not a candidate: an administrator holds it, it has the target and works on it or failed
/// on it, or it is not ready.
pub(super) fn already_targeted(
    views: &[NodeView<'_>],
    goal: RolloutTarget<'_>,
) -> BTreeMap<String, WaitReason> {
    let mut waiting = BTreeMap::new();
    for view in views {
        let held = view.held().filter(|_| view.needs_target(goal) || !view.is_done());
        let reason = if let Some(because) = held {
            Some(WaitReason::Held { because: because.to_owned() })
        } else if view.needs_target(goal) {
            view.not_ready().map(|because| WaitReason::NotReady { because })
        } else if view.is_degraded() && !view.has_stale_failure() {
            Some(degraded(*view))
        } else if view.awaits_reboot() && view.not_ready().is_none() {
            Some(WaitReason::RestartPending { opens: None })
        } else if let Some(because) = silence(*view) {
            Some(WaitReason::NotReady { because })
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

/// What is wrong with a degraded machine.
fn degraded(view: NodeView<'_>) -> WaitReason {
    let (paths, message) = (view.drifted(), view.reason().to_owned());
    if !paths.is_empty() {
        WaitReason::Drifted { paths }
    } else if view.is_failing() {
        WaitReason::Failing { message }
    } else {
        WaitReason::Degraded { message }
    }
}

/// Why a machine that has the target is not working on it: it has not reported for a while, and it does not reboot.
fn silence(view: NodeView<'_>) -> Option<NotReady> {
    let is_rebooting = view.annotation(annotation::POST_CONFIG_ACTION) == Some(state::REBOOTING);
    let is_silent = |found: &NotReady| matches!(found, NotReady::NotReady(it) if it == "Unknown");
    view.not_ready().filter(|found| is_silent(found) && !is_rebooting)
}

/// By zone, machines without a zone last; within a zone the oldest first.
pub(super) fn by_zone_then_age(a: &NodeView<'_>, b: &NodeView<'_>) -> Ordering {
    let by_age = || a.created().map(|time| &time.0).cmp(&b.created().map(|time| &time.0));
    match (a.zone(), b.zone()) {
        (Some(a), Some(b)) => a.cmp(b).then_with(by_age),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => by_age(),
    }
}
