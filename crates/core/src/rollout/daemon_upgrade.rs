//! The upgrade of the daemons of a pool: which machines are asked now, and why the others wait. The rules are those of
//! a rollout: a few at a time, canaries first, in the maintenance windows, and a limit for failures.
//!
//! A daemon that upgrades disturbs nothing on its machine, but it manages nothing for a moment, and a bad one not until
//! its watchdog has put the old one back.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use super::candidates::by_zone_then_age;
use super::policy::RolloutPolicy;
use crate::api::MachineConfigPool;
use crate::api::names::annotation::machinist;
use crate::node::{DaemonReport, NodeView, UpgradeRequest};

/// Where a machine is in the upgrade of its pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum UpgradeState {
    /// It runs the binary.
    Done,
    /// It was asked, and works on it.
    Upgrading,
    /// It is asked now.
    Next,
    /// Its turn comes later.
    Waiting {
        /// Why.
        because: String,
    },
    /// It cannot upgrade itself.
    Cannot {
        /// Why, with the remedy.
        because: String,
    },
    /// It tried, and runs the daemon it had before.
    Failed {
        /// Why.
        because: String,
    },
}

/// Why no further machine is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "camelCase")]
pub enum UpgradeHalted {
    /// Too many machines failed.
    Failed {
        /// The machines.
        machines: Vec<String>,
    },
    /// The pool is paused.
    Paused,
    /// The maintenance window is closed.
    OutsideWindow {
        /// When it opens.
        opens: Time,
    },
    /// The first machines have to work with it for a while.
    Soaking {
        /// When the others may follow.
        until: Time,
    },
}

/// The decision about a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UpgradeDecision {
    /// The machines that are asked now, in this order.
    pub next: Vec<String>,
    /// Where each machine is.
    pub machines: BTreeMap<String, UpgradeState>,
    /// Why no further machine is asked, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halted: Option<UpgradeHalted>,
    /// When the decision may change without any event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Time>,
}

impl UpgradeDecision {
    /// Whether nothing happens any more without a person.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let moves =
            |state: &UpgradeState| matches!(state, UpgradeState::Upgrading | UpgradeState::Next);
        let waits = |state: &UpgradeState| matches!(state, UpgradeState::Waiting { .. });
        let is_stopped =
            matches!(self.halted, Some(UpgradeHalted::Failed { .. } | UpgradeHalted::Paused));
        !self.machines.values().any(moves) && (is_stopped || !self.machines.values().any(waits))
    }

    /// Whether each machine runs the binary.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.machines.values().all(|state| *state == UpgradeState::Done)
    }
}

/// The state of one machine for a request, before the pool decides whether it is next.
#[must_use]
pub fn upgrade_state(view: NodeView<'_>, request: &UpgradeRequest) -> UpgradeState {
    let name = view.name();
    let Some(report) = DaemonReport::of(view) else {
        let because = format!(
            "its daemon does not say which version it runs: it is too old to upgrade itself, or has not started: see `machinist status {name}`"
        );
        return UpgradeState::Cannot { because };
    };
    if report.sha256 == request.sha256 {
        return UpgradeState::Done;
    }
    if let Some(because) = report.cannot_upgrade {
        return UpgradeState::Cannot { because };
    }
    if let Some(wanted) = request.architecture.as_deref().filter(|it| *it != report.architecture) {
        let because = format!(
            "it is {}, and the binary is for {wanted}: name one for it with --binary",
            report.architecture
        );
        return UpgradeState::Cannot { because };
    }
    if let Some(failed) = report.failed.filter(|failed| failed.id == request.id) {
        return UpgradeState::Failed { because: failed.reason };
    }
    let asked = view.annotation(machinist::UPGRADE).map(UpgradeRequest::parse);
    if let Some(Ok(asked)) = asked
        && asked.id == request.id
    {
        return UpgradeState::Upgrading;
    }
    let because = if view.held().is_some() {
        format!("it is held: `machinist release {name}`")
    } else if view.not_ready().is_some() {
        "it is not ready".to_owned()
    } else if !view.is_done() {
        format!("it is not done with its config: see `machinist status {name}`")
    } else {
        return UpgradeState::Next;
    };
    UpgradeState::Waiting { because }
}

/// Decides which machines of a pool are asked now.
#[must_use]
pub fn decide_upgrade(
    pool: &MachineConfigPool,
    nodes: &[&Node],
    request: &UpgradeRequest,
    policy: &RolloutPolicy,
    max_unavailable: i64,
    now: &Time,
) -> UpgradeDecision {
    let views: Vec<NodeView<'_>> = nodes.iter().map(|node| NodeView(node)).collect();
    let mut decision = UpgradeDecision::default();
    let mut ready = Vec::new();
    for view in &views {
        let state = upgrade_state(*view, request);
        if state == UpgradeState::Next {
            ready.push(*view);
        }
        decision.machines.insert(view.name().to_owned(), state);
    }
    ready.sort_by(by_zone_then_age);
    let count = |wanted: fn(&UpgradeState) -> bool| {
        decision.machines.values().filter(|state| wanted(state)).count()
    };
    let done = count(|state| *state == UpgradeState::Done);
    let working = count(|state| *state == UpgradeState::Upgrading);
    // A machine that is away for another reason counts, too.
    let away = views.iter().filter(|view| {
        view.is_unavailable()
            && decision.machines.get(view.name()) != Some(&UpgradeState::Upgrading)
    });
    let taken = i64::try_from(working + away.count()).unwrap_or(i64::MAX);
    let free = usize::try_from(max_unavailable.saturating_sub(taken)).unwrap_or_default();
    let since: Vec<Time> = views
        .iter()
        .filter(|view| decision.machines.get(view.name()) == Some(&UpgradeState::Done))
        .filter_map(|view| DaemonReport::of(*view).map(|report| report.since))
        .collect();
    let soaking = soaks_until(policy, since, now);
    decision.halted = halted(pool, &decision.machines, policy, soaking, !ready.is_empty(), now);
    decision.wake = match &decision.halted {
        Some(UpgradeHalted::OutsideWindow { opens }) => Some(opens.clone()),
        Some(UpgradeHalted::Soaking { until }) => Some(until.clone()),
        _ => None,
    };
    let (limit, because) = match &decision.halted {
        Some(halted) => (0, halted_reason(halted)),
        None if policy.canary > done => {
            let limit = (policy.canary - done).saturating_sub(working).min(free);
            (limit, "the first machines have to work with it before the others follow".to_owned())
        }
        None => (free, "its turn comes when maxUnavailable allows".to_owned()),
    };
    for (index, view) in ready.iter().enumerate() {
        let name = view.name().to_owned();
        if index < limit {
            decision.next.push(name);
        } else {
            let because = because.clone();
            decision.machines.insert(name, UpgradeState::Waiting { because });
        }
    }
    decision
}

/// Until when the first machines have to work with the binary, from when each has done so.
fn soaks_until(policy: &RolloutPolicy, mut since: Vec<Time>, now: &Time) -> Option<Time> {
    if policy.canary == 0 || since.len() < policy.canary {
        return None;
    }
    since.sort();
    let start = since.get(policy.canary - 1)?;
    let until = start.0.checked_add(policy.soak).ok().map(Time)?;
    (until > *now).then_some(until)
}

fn halted(
    pool: &MachineConfigPool,
    machines: &BTreeMap<String, UpgradeState>,
    policy: &RolloutPolicy,
    soaking: Option<Time>,
    has_candidates: bool,
    now: &Time,
) -> Option<UpgradeHalted> {
    let failed = machines.iter().filter(|(_, state)| matches!(state, UpgradeState::Failed { .. }));
    let failed: Vec<String> = failed.map(|(name, _)| name.clone()).collect();
    if failed.len() > policy.max_failures.unwrap_or(0) {
        return Some(UpgradeHalted::Failed { machines: failed });
    }
    if !has_candidates {
        return None;
    }
    if pool.spec.paused == Some(true) {
        return Some(UpgradeHalted::Paused);
    }
    if let Some(windows) = &policy.windows
        && windows.closes_at(now).is_none()
    {
        return Some(UpgradeHalted::OutsideWindow { opens: windows.opens_at(now) });
    }
    soaking.map(|until| UpgradeHalted::Soaking { until })
}

/// Why no further machine is asked, for people.
#[must_use]
pub fn halted_reason(halted: &UpgradeHalted) -> String {
    match halted {
        UpgradeHalted::Failed { machines } => format!(
            "the upgrade has stopped, because it failed on {}: `machinist upgrade` again, with a binary that works, or --cancel",
            machines.join(", ")
        ),
        UpgradeHalted::Paused => "the pool is paused: `machinist resume`".to_owned(),
        UpgradeHalted::OutsideWindow { opens } => {
            format!("the maintenance window opens at {}", opens.0)
        }
        UpgradeHalted::Soaking { until } => {
            format!("the first machines have to work with it until {}", until.0)
        }
    }
}

#[cfg(test)]
mod tests;
