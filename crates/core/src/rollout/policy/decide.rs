//! The decision about a pool: which machines get the config now, which may reboot now, and why the
//! others wait.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::api::MachineConfigPool;
use crate::api::names::annotation::machinist;
use crate::node::{MachineMode, NodeView, RolloutTarget};
use crate::rollout::candidates::{already_targeted, by_zone_then_age};
use crate::rollout::waiting::{MachineNames, WaitReason};

use super::canary::{self, CanaryState};
use super::{RebootPolicy, RolloutPolicy, failures};

/// Why the whole rollout has stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "camelCase")]
pub enum RolloutHalted {
    /// The pool has no rendered config yet.
    NothingRendered,
    /// The pool is paused.
    Paused,
    /// Too many machines failed on the config.
    BadConfig {
        /// The config.
        config: String,
        /// The machines that failed on it and still report the failure.
        failed: Vec<String>,
    },
    /// The maintenance window is closed.
    OutsideWindow {
        /// When it opens.
        opens: Time,
    },
    /// The canaries have to stay healthy for a while.
    Soaking {
        /// When the others may follow.
        until: Time,
    },
    /// Only machines that are observed are left.
    Observing {
        /// The machines.
        machines: Vec<String>,
    },
    /// Only reboots are left, and an administrator has to approve them.
    RestartsPending {
        /// The machines.
        machines: Vec<String>,
    },
}

/// The decision about a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RolloutDecision {
    /// The machines that get the config now, in this order.
    pub next: Vec<String>,
    /// The machines whose reboot is approved now, in this order.
    pub restart: Vec<String>,
    /// The machines that are observed and wait for a drain, which is withdrawn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub withdraw: Vec<String>,
    /// The machines that are not updated and get nothing now, and why.
    pub waiting: BTreeMap<String, WaitReason>,
    /// Annotations to write to the pool first (`None`: remove).
    pub memory: BTreeMap<String, Option<String>>,
    /// Why the whole rollout has stopped, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halted: Option<RolloutHalted>,
    /// When the decision may change without any event. Decide again then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Time>,
}

/// Decides what happens to a pool now. `nodes` are the machines of the pool, and at most
/// `max_unavailable` of them may be unavailable.
#[must_use]
pub fn decide_rollout(
    pool: &MachineConfigPool,
    nodes: &[&Node],
    policy: &RolloutPolicy,
    max_unavailable: i64,
    now: &Time,
) -> RolloutDecision {
    decide_layered_rollout(pool.target_config().into(), pool, nodes, policy, max_unavailable, now)
}

/// As [`decide_rollout`], for a pool that may have a layered image.
#[must_use]
pub fn decide_layered_rollout(
    goal: RolloutTarget<'_>,
    pool: &MachineConfigPool,
    nodes: &[&Node],
    policy: &RolloutPolicy,
    max_unavailable: i64,
    now: &Time,
) -> RolloutDecision {
    let target = goal.config;
    let all: Vec<NodeView<'_>> = nodes.iter().map(|node| NodeView(node)).collect();
    let mut decision =
        RolloutDecision { waiting: already_targeted(&all, goal), ..RolloutDecision::default() };
    let is_observed = |view: &NodeView<'_>| {
        policy.is_release || MachineMode::of_machine(*view, policy.mode) == MachineMode::Observe
    };
    let (observed, views): (Vec<_>, Vec<_>) = all.iter().copied().partition(is_observed);
    decision.observe(&observed, goal);
    let (refused, views): (Vec<_>, Vec<_>) = views
        .into_iter()
        .partition(|view| policy.refused.contains_key(view.name()) && view.needs_target(goal));
    decision.refuse(&refused, policy);
    let queues = UpdateQueues::from_nodes(&views, goal);
    let bad = failures::evaluate_failures(pool, policy, &views, target);
    let (canary, canary_memory) = canary::evaluate_canary(pool, policy, &views, goal, now);
    if let Some(value) = canary_memory {
        decision.memory.insert(machinist::CANARY_STATE.to_owned(), value);
    }
    if let Some(bad) = &bad {
        decision.memory.extend(bad.pool_annotations.clone());
    }
    let held = if target.is_empty() {
        Some((WaitReason::NothingRendered, RolloutHalted::NothingRendered))
    } else if pool.spec.paused == Some(true) {
        Some((WaitReason::PoolPaused, RolloutHalted::Paused))
    } else {
        bad.map(|bad| {
            let config = target.to_owned();
            let halted = RolloutHalted::BadConfig { config: config.clone(), failed: bad.failed };
            (WaitReason::BadConfig { config }, halted)
        })
    };
    if let Some((waiting, halted)) = held {
        let is_bad = matches!(waiting, WaitReason::BadConfig { .. });
        decision.hold(&queues.candidates, &waiting);
        if is_bad {
            decision.hold(&queues.reboots, &waiting);
        } else {
            let mut budget = UnavailabilityBudget::of(&views, goal, max_unavailable);
            decision.approve_requested(&queues.reboots, &mut budget);
        }
        let stops_somebody = !queues.candidates.is_empty() || !queues.reboots.is_empty();
        if stops_somebody || is_bad && !decision.waiting.is_empty() {
            decision.halted = Some(halted);
        }
        decision.halt_for_observation();
        return decision;
    }
    let hours = WindowState::at(policy, now);
    let mut budget = UnavailabilityBudget::of(&all, goal, max_unavailable);
    decision.approve_reboots(&queues.reboots, policy, &hours, &mut budget);
    decision.choose_targets(&queues.candidates, policy, &hours, &canary, &mut budget);
    decision.retarget_at_no_cost(&views, goal, &hours);
    decision.halt_for_reboots();
    decision.halt_for_observation();
    decision.set_recheck(&hours, &canary);
    decision
}

/// The machines that could be updated or rebooted now, in order.
struct UpdateQueues<'a> {
    /// They need the config.
    candidates: Vec<NodeView<'a>>,
    /// They have it except for a reboot.
    reboots: Vec<NodeView<'a>>,
}

impl<'a> UpdateQueues<'a> {
    fn from_nodes(views: &[NodeView<'a>], goal: RolloutTarget<'_>) -> Self {
        let free = views.iter().copied().filter(|view| view.held().is_none());
        let ready = free.filter(|view| view.not_ready().is_none());
        let (mut candidates, mut rest): (Vec<_>, Vec<_>) =
            ready.partition(|view| view.needs_target(goal));
        rest.retain(|view| view.awaits_reboot() && !view.is_failing());
        candidates.sort_by(by_zone_then_age);
        rest.sort_by(by_zone_then_age);
        Self { candidates, reboots: rest }
    }
}

/// The maintenance window now.
enum WindowState {
    Always,
    Open { closes: Time },
    Closed { opens: Time },
}

impl WindowState {
    fn at(policy: &RolloutPolicy, now: &Time) -> Self {
        let Some(windows) = &policy.windows else { return Self::Always };
        match windows.closes_at(now) {
            Some(closes) => Self::Open { closes },
            None => Self::Closed { opens: windows.opens_at(now) },
        }
    }
}

/// How many more machines may become unavailable, and which are unavailable.
struct UnavailabilityBudget {
    remaining: usize,
    max_unavailable: i64,
    unavailable: Vec<String>,
}

impl UnavailabilityBudget {
    fn of(views: &[NodeView<'_>], goal: RolloutTarget<'_>, max_unavailable: i64) -> Self {
        // A machine that was registered again counts once it has a target. If it counted before, it
        // would wait for itself.
        let is_idle = |view: &NodeView<'_>| view.lacks_target() && view.not_ready().is_none();
        let away = views.iter().filter(|view| view.is_unavailable() && !is_idle(view));
        // A machine that is both counts twice, as in MCO.
        let failing = views.iter().filter(|view| !view.needs_target(goal) && view.is_failing());
        let away: Vec<String> = away.chain(failing).map(|view| view.name().to_owned()).collect();
        let gone = i64::try_from(away.len()).unwrap_or(i64::MAX);
        let left = usize::try_from(max_unavailable.saturating_sub(gone)).unwrap_or_default();
        let away: BTreeSet<String> = away.into_iter().collect();
        Self { remaining: left, max_unavailable, unavailable: away.into_iter().collect() }
    }

    fn take(&mut self, wanted: usize, queue: &[NodeView<'_>]) -> Vec<String> {
        let count = wanted.min(self.remaining).min(queue.len());
        let taken: Vec<String> =
            queue.iter().take(count).map(|view| view.name().to_owned()).collect();
        self.remaining -= count;
        self.unavailable.extend(taken.iter().cloned());
        taken
    }

    fn no_capacity(&self) -> WaitReason {
        let away = MachineNames::from(self.unavailable.clone());
        WaitReason::NoCapacity { max_unavailable: self.max_unavailable, away }
    }
}

impl RolloutDecision {
    /// No machine is updated before the pool's layered image is ready.
    #[must_use]
    pub fn waiting_for_image(mut self, because: Option<String>) -> Self {
        if let Some(because) = because {
            for name in std::mem::take(&mut self.next) {
                self.waiting.insert(name, WaitReason::Image { because: because.clone() });
            }
        }
        self
    }

    /// Machines that are observed get nothing. A drain that one of them waits for is withdrawn.
    fn observe(&mut self, views: &[NodeView<'_>], goal: RolloutTarget<'_>) {
        for view in views.iter().filter(|view| view.needs_target(goal) || view.awaits_drain()) {
            if view.awaits_drain() && !view.has_desired_image() {
                self.withdraw.push(view.name().to_owned());
            }
            let would = view.observation().unwrap_or_default().to_owned();
            self.waiting.insert(view.name().to_owned(), WaitReason::Observing { would });
        }
    }

    /// Machines that would refuse the config do not get it, so that they stay as they are.
    fn refuse(&mut self, views: &[NodeView<'_>], policy: &RolloutPolicy) {
        for view in views {
            let because = policy.refused.get(view.name()).cloned().unwrap_or_default();
            self.waiting.insert(view.name().to_owned(), WaitReason::Refused { because });
        }
    }

    fn halt_for_observation(&mut self) {
        let is_observed = |reason: &WaitReason| matches!(reason, WaitReason::Observing { .. });
        let idle = self.next.is_empty() && self.restart.is_empty() && self.halted.is_none();
        if idle && !self.waiting.is_empty() && self.waiting.values().all(is_observed) {
            let machines = self.waiting.keys().cloned().collect();
            self.halted = Some(RolloutHalted::Observing { machines });
        }
    }

    fn hold(&mut self, views: &[NodeView<'_>], reason: &WaitReason) {
        for view in views {
            self.waiting.insert(view.name().to_owned(), reason.clone());
        }
    }

    /// A machine that is unavailable itself does not wait for others: it is busy with an earlier config.
    fn hold_without_capacity(&mut self, views: &[NodeView<'_>], budget: &UnavailabilityBudget) {
        let no_capacity = budget.no_capacity();
        for view in views {
            let reason = if view.is_unavailable() && !view.is_done() {
                WaitReason::Superseded { config: view.desired_config().to_owned() }
            } else {
                no_capacity.clone()
            };
            self.waiting.insert(view.name().to_owned(), reason);
        }
    }

    /// Machines that get the config without using capacity:
    ///
    /// - one that was drained for a config and failed to apply it. MCO leaves it until someone uncordons
    ///   it;
    /// - one that waits for the drain for another config. It has not begun to write, and must not end in
    ///   a config that was taken back;
    /// - one that was registered again and has the config already.
    ///
    /// The first two are unavailable already. A machine that gets the config it runs is not disrupted,
    /// so that needs no maintenance window.
    fn retarget_at_no_cost(
        &mut self,
        views: &[NodeView<'_>],
        goal: RolloutTarget<'_>,
        hours: &WindowState,
    ) {
        let is_closed = matches!(hours, WindowState::Closed { .. });
        let free = views.iter().filter(|view| view.held().is_none());
        for view in free.filter(|view| view.needs_target(goal)) {
            let runs_it = view.current_config() == goal.config
                && goal.image.is_none()
                && !view.has_desired_image();
            let is_undisturbed = runs_it && (view.lacks_target() || view.awaits_drain());
            let is_away = !is_closed && (view.is_stranded() || view.awaits_drain());
            let is_free = is_undisturbed || is_away;
            if is_free && !self.next.iter().any(|name| name == view.name()) {
                self.waiting.remove(view.name());
                self.next.push(view.name().to_owned());
            }
        }
    }

    /// Reboots that an administrator has asked for need neither a window nor an approval.
    fn approve_requested(&mut self, queue: &[NodeView<'_>], budget: &mut UnavailabilityBudget) {
        let requested: Vec<NodeView<'_>> =
            queue.iter().copied().filter(|view| view.requests_reboot()).collect();
        self.approve(&requested, budget);
    }

    fn approve(&mut self, queue: &[NodeView<'_>], budget: &mut UnavailabilityBudget) {
        let approved = budget.take(queue.len(), queue);
        for name in &approved {
            self.waiting.remove(name);
        }
        self.hold_without_capacity(&queue[approved.len()..], budget);
        self.restart.extend(approved);
    }

    /// Pending reboots come before new machines: windows are short, and started updates should finish.
    fn approve_reboots(
        &mut self,
        queue: &[NodeView<'_>],
        policy: &RolloutPolicy,
        hours: &WindowState,
        budget: &mut UnavailabilityBudget,
    ) {
        self.approve_requested(queue, budget);
        let queue: Vec<NodeView<'_>> =
            queue.iter().copied().filter(|view| !view.requests_reboot()).collect();
        let queue = queue.as_slice();
        match hours {
            // Without a window only an administrator can approve a reboot.
            WindowState::Always if policy.reboot == RebootPolicy::Deferred => {}
            WindowState::Closed { opens } => {
                self.hold(queue, &WaitReason::RestartPending { opens: Some(opens.clone()) });
            }
            WindowState::Always | WindowState::Open { .. } => {
                self.approve(queue, budget);
            }
        }
    }

    fn choose_targets(
        &mut self,
        queue: &[NodeView<'_>],
        policy: &RolloutPolicy,
        hours: &WindowState,
        canary: &CanaryState,
        budget: &mut UnavailabilityBudget,
    ) {
        if queue.is_empty() {
            return;
        }
        match (hours, canary) {
            // With deferred reboots, the change itself may be applied outside the window.
            (WindowState::Closed { opens }, _) if policy.reboot == RebootPolicy::Immediate => {
                let opens = opens.clone();
                self.hold(queue, &WaitReason::OutsideWindow { opens: opens.clone() });
                self.halted = Some(RolloutHalted::OutsideWindow { opens });
            }
            (_, CanaryState::Soaking { until }) => {
                self.hold(queue, &WaitReason::Soaking { until: until.clone() });
                self.halted = Some(RolloutHalted::Soaking { until: until.clone() });
            }
            (_, CanaryState::InProgress { remaining: 0, unfinished }) => {
                self.hold(queue, &WaitReason::Canary { machines: unfinished.clone().into() });
            }
            _ if budget.remaining == 0 => self.hold_without_capacity(queue, budget),
            (_, canary) => {
                let (most, mut first) = match canary {
                    CanaryState::InProgress { remaining, unfinished } => {
                        (*remaining, unfinished.clone())
                    }
                    _ => (queue.len(), Vec::new()),
                };
                self.next = budget.take(most, queue);
                first.extend(self.next.iter().cloned());
                let behind = WaitReason::Canary { machines: first.into() };
                for (ahead, view) in queue.iter().enumerate().skip(self.next.len()) {
                    let reason = if ahead < most {
                        WaitReason::NotItsTurn { ahead }
                    } else {
                        behind.clone()
                    };
                    self.waiting.insert(view.name().to_owned(), reason);
                }
            }
        }
    }

    /// When only reboots are left, the rollout stops until they are approved.
    fn halt_for_reboots(&mut self) {
        let idle = self.next.is_empty() && self.restart.is_empty() && self.halted.is_none();
        let mut opening = None;
        for reason in self.waiting.values() {
            let WaitReason::RestartPending { opens } = reason else { return };
            opening.clone_from(opens);
        }
        if !idle || self.waiting.is_empty() {
            return;
        }
        self.halted = Some(match opening {
            Some(opens) => RolloutHalted::OutsideWindow { opens },
            None => {
                RolloutHalted::RestartsPending { machines: self.waiting.keys().cloned().collect() }
            }
        });
    }

    fn set_recheck(&mut self, hours: &WindowState, canary: &CanaryState) {
        if self.waiting.is_empty() && self.next.is_empty() && self.restart.is_empty() {
            return;
        }
        let soaked = match canary {
            CanaryState::Soaking { until } => Some(until.clone()),
            _ => None,
        };
        let window = match hours {
            WindowState::Always => None,
            WindowState::Open { closes } => Some(closes.clone()),
            WindowState::Closed { opens } => Some(opens.clone()),
        };
        self.wake = soaked.into_iter().chain(window).min();
    }
}
