//! Who goes next, and why the others do not go yet.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use serde::Serialize;

use crate::api::MachineConfigPool;

use super::waiting::{Names, Waiting};
use super::{Goal, NodeView};

/// The decision about one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The machines that get the new config now, in this order.
    pub next: Vec<String>,
    /// The machines that are not on the new config and do not get it now, and why.
    pub waiting: BTreeMap<String, Waiting>,
}

/// Chooses which machines of a pool get its config now.
#[must_use]
pub fn choose(pool: &MachineConfigPool, nodes: &[&Node], max_unavailable: i64) -> Choice {
    let target = target_of(pool);
    let views: Vec<NodeView<'_>> = nodes.iter().map(|node| NodeView(node)).collect();
    let mut waiting = waiting_on_themselves(&views, target.into());
    let mut candidates: Vec<NodeView<'_>> = views
        .iter()
        .copied()
        .filter(|view| view.needs(target) && view.not_ready().is_none())
        .collect();
    let held = if target.is_empty() {
        Some(Waiting::NothingRendered)
    } else {
        (pool.spec.paused == Some(true)).then_some(Waiting::PoolPaused)
    };
    if let Some(reason) = held {
        for view in &candidates {
            waiting.insert(view.name().to_owned(), reason.clone());
        }
        return Choice { next: Vec::new(), waiting };
    }
    let away: Vec<NodeView<'_>> = views.iter().copied().filter(|v| v.is_unavailable()).collect();
    let failing = views.iter().copied().filter(|view| !view.needs(target) && view.is_failing());
    let failing: Vec<NodeView<'_>> = failing.collect();
    let count = |views: &[NodeView<'_>]| i64::try_from(views.len()).unwrap_or(i64::MAX);
    let capacity = max_unavailable.saturating_sub(count(&away)).saturating_sub(count(&failing));
    let room = usize::try_from(capacity).unwrap_or_default();
    if room == 0 {
        let away: Vec<String> =
            away.iter().chain(&failing).map(|view| view.name().to_owned()).collect();
        let away = Names::from(away);
        for view in &candidates {
            let reason = Waiting::NoCapacity { max_unavailable, away: away.clone() };
            waiting.insert(view.name().to_owned(), reason);
        }
        return Choice { next: Vec::new(), waiting };
    }
    candidates.sort_by(by_zone_then_age);
    for (ahead, view) in candidates.iter().enumerate().skip(room) {
        waiting.insert(view.name().to_owned(), Waiting::NotItsTurn { ahead });
    }
    candidates.truncate(room);
    let next = candidates.iter().map(|view| view.name().to_owned()).collect();
    Choice { next, waiting }
}

/// The config that the pool's machines are to have.
pub(super) fn target_of(pool: &MachineConfigPool) -> &str {
    let configuration = pool.spec.configuration.as_ref();
    configuration.and_then(|configuration| configuration.name.as_deref()).unwrap_or_default()
}

/// Machines that nobody has to choose: they have the target and work on it, failed on it, or are
/// not ready to be given it.
pub(super) fn waiting_on_themselves(
    views: &[NodeView<'_>],
    goal: Goal<'_>,
) -> BTreeMap<String, Waiting> {
    let mut waiting = BTreeMap::new();
    for view in views {
        let reason = if view.needs(goal) {
            view.not_ready().map(|because| Waiting::NotReady { because })
        } else if view.is_failing() {
            Some(Waiting::Failing { message: view.reason().to_owned() })
        } else if view.awaits_restart() && view.not_ready().is_none() {
            Some(Waiting::RestartPending { opens: None })
        } else if !view.is_done() {
            Some(Waiting::Working { state: view.state().to_owned() })
        } else {
            view.not_ready().map(|because| Waiting::NotReady { because })
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
