//! The decision about a pool: who gets the config now, who may restart now, and what everybody else
//! waits for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::api::MachineConfigPool;
use crate::api::names::annotation::machinist;
use crate::update::candidates::{by_zone_then_age, target_of, waiting_on_themselves};
use crate::update::waiting::{Names, Waiting};
use crate::update::{Goal, NodeView};

use super::canary::{self, Canary};
use super::{Policy, Reboot, failures};

/// Why a whole rollout stands still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "camelCase")]
pub enum Halted {
    /// The pool has no rendered config yet.
    NothingRendered,
    /// The pool is paused.
    Paused,
    /// The config is one of the bad ones.
    BadConfig {
        /// The config.
        config: String,
        /// The machines that failed on it and still say so.
        failed: Vec<String>,
    },
    /// The maintenance window is closed.
    OutsideWindow {
        /// When it opens.
        opens: Time,
    },
    /// The first machines have to prove themselves for a while.
    Soaking {
        /// When the others may go.
        until: Time,
    },
    /// All that is left to do are restarts that a person has to allow.
    RestartsPending {
        /// The machines.
        machines: Vec<String>,
    },
}

/// The decision about a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The machines that get the config now, in this order.
    pub next: Vec<String>,
    /// The machines that get the permission to restart now, in this order.
    pub restart: Vec<String>,
    /// The machines that are not there yet and get nothing now, and why.
    pub waiting: BTreeMap<String, Waiting>,
    /// Annotations to write on the pool (None: remove), before anything else is done.
    pub memory: BTreeMap<String, Option<String>>,
    /// Why the whole rollout stands still, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halted: Option<Halted>,
    /// When the decision changes by itself: ask again then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Time>,
}

/// Decides what happens to a pool now. The machines are those of the pool; what its annotations say
/// is the policy, and `max_unavailable` how many may be away.
#[must_use]
pub fn decide(
    pool: &MachineConfigPool,
    nodes: &[&Node],
    policy: &Policy,
    max_unavailable: i64,
    now: &Time,
) -> Decision {
    decide_for(target_of(pool).into(), pool, nodes, policy, max_unavailable, now)
}

/// The same, for a pool that may run an image of its own.
#[must_use]
pub fn decide_for(
    goal: Goal<'_>,
    pool: &MachineConfigPool,
    nodes: &[&Node],
    policy: &Policy,
    max_unavailable: i64,
    now: &Time,
) -> Decision {
    let target = goal.config;
    let views: Vec<NodeView<'_>> = nodes.iter().map(|node| NodeView(node)).collect();
    let mut decision =
        Decision { waiting: waiting_on_themselves(&views, goal), ..Decision::default() };
    let queues = Queues::of(&views, goal);
    let bad = failures::judge(pool, policy, &views, target);
    let (canary, canary_memory) = canary::judge(pool, policy, &views, goal, now);
    if let Some(value) = canary_memory {
        decision.memory.insert(machinist::CANARY_STATE.to_owned(), value);
    }
    if let Some(bad) = &bad {
        decision.memory.extend(bad.memory.clone());
    }
    let held = if target.is_empty() {
        Some((Waiting::NothingRendered, Halted::NothingRendered))
    } else if pool.spec.paused == Some(true) {
        Some((Waiting::PoolPaused, Halted::Paused))
    } else {
        bad.map(|bad| {
            let config = target.to_owned();
            let halted = Halted::BadConfig { config: config.clone(), failed: bad.failed };
            (Waiting::BadConfig { config }, halted)
        })
    };
    if let Some((waiting, halted)) = held {
        let is_bad = matches!(waiting, Waiting::BadConfig { .. });
        decision.hold(&queues.candidates, &waiting);
        if is_bad {
            decision.hold(&queues.restarts, &waiting);
        }
        let stops_somebody = !queues.candidates.is_empty() || !queues.restarts.is_empty();
        if stops_somebody || is_bad && !decision.waiting.is_empty() {
            decision.halted = Some(halted);
        }
        return decision;
    }
    let hours = Hours::of(policy, now);
    let mut room = Room::of(&views, goal, max_unavailable);
    decision.restarts(&queues.restarts, policy, &hours, &mut room);
    decision.targets(&queues.candidates, policy, &hours, &canary, &mut room);
    decision.rescue(&views, goal, &hours);
    decision.halt_for_restarts();
    decision.wake(&hours, &canary);
    decision
}

/// Who could go now, in the order in which they go.
struct Queues<'a> {
    /// They need the config.
    candidates: Vec<NodeView<'a>>,
    /// They have it but for a restart.
    restarts: Vec<NodeView<'a>>,
}

impl<'a> Queues<'a> {
    fn of(views: &[NodeView<'a>], goal: Goal<'_>) -> Self {
        let ready = views.iter().copied().filter(|view| view.not_ready().is_none());
        let (mut candidates, mut rest): (Vec<_>, Vec<_>) = ready.partition(|view| view.needs(goal));
        rest.retain(|view| view.awaits_restart() && !view.is_failing());
        candidates.sort_by(by_zone_then_age);
        rest.sort_by(by_zone_then_age);
        Self { candidates, restarts: rest }
    }
}

/// The maintenance window now.
enum Hours {
    Always,
    Open { closes: Time },
    Closed { opens: Time },
}

impl Hours {
    fn of(policy: &Policy, now: &Time) -> Self {
        let Some(windows) = &policy.windows else { return Self::Always };
        match windows.closes(now) {
            Some(closes) => Self::Open { closes },
            None => Self::Closed { opens: windows.opens(now) },
        }
    }
}

/// How many more machines may go away, and who is away.
struct Room {
    left: usize,
    max_unavailable: i64,
    away: Vec<String>,
}

impl Room {
    fn of(views: &[NodeView<'_>], goal: Goal<'_>, max_unavailable: i64) -> Self {
        let away = views.iter().filter(|view| view.is_unavailable());
        // One that is both counts twice, as in the real system.
        let failing = views.iter().filter(|view| !view.needs(goal) && view.is_failing());
        let away: Vec<String> = away.chain(failing).map(|view| view.name().to_owned()).collect();
        let gone = i64::try_from(away.len()).unwrap_or(i64::MAX);
        let left = usize::try_from(max_unavailable.saturating_sub(gone)).unwrap_or_default();
        Self { left, max_unavailable, away }
    }

    fn take(&mut self, wanted: usize, queue: &[NodeView<'_>]) -> Vec<String> {
        let count = wanted.min(self.left).min(queue.len());
        let taken: Vec<String> =
            queue.iter().take(count).map(|view| view.name().to_owned()).collect();
        self.left -= count;
        self.away.extend(taken.iter().cloned());
        taken
    }

    fn none_left(&self) -> Waiting {
        let away = Names::from(self.away.clone());
        Waiting::NoCapacity { max_unavailable: self.max_unavailable, away }
    }
}

impl Decision {
    /// Nobody goes before the image of the pool is there.
    #[must_use]
    pub fn waiting_for_image(mut self, because: Option<String>) -> Self {
        if let Some(because) = because {
            for name in std::mem::take(&mut self.next) {
                self.waiting.insert(name, Waiting::Image { because: because.clone() });
            }
        }
        self
    }

    fn hold(&mut self, views: &[NodeView<'_>], reason: &Waiting) {
        for view in views {
            self.waiting.insert(view.name().to_owned(), reason.clone());
        }
    }

    /// A machine that was emptied for a config that it could not apply gets the next one at once: it is
    /// away already, so nobody else goes away for its sake. The real system leaves it where it is until
    /// a person uncordons it.
    fn rescue(&mut self, views: &[NodeView<'_>], goal: Goal<'_>, hours: &Hours) {
        if matches!(hours, Hours::Closed { .. }) {
            return;
        }
        for view in views.iter().filter(|view| view.needs(goal) && view.is_stranded()) {
            self.waiting.remove(view.name());
            self.next.push(view.name().to_owned());
        }
    }

    /// Restarts come before new machines: windows are short, and what was begun should end.
    fn restarts(
        &mut self,
        queue: &[NodeView<'_>],
        policy: &Policy,
        hours: &Hours,
        room: &mut Room,
    ) {
        match hours {
            // Only a person may say so, and nobody has.
            Hours::Always if policy.reboot == Reboot::Deferred => {}
            Hours::Closed { opens } => {
                self.hold(queue, &Waiting::RestartPending { opens: Some(opens.clone()) });
            }
            Hours::Always | Hours::Open { .. } => {
                self.restart = room.take(queue.len(), queue);
                for name in &self.restart {
                    self.waiting.remove(name);
                }
                self.hold(&queue[self.restart.len()..], &room.none_left());
            }
        }
    }

    fn targets(
        &mut self,
        queue: &[NodeView<'_>],
        policy: &Policy,
        hours: &Hours,
        canary: &Canary,
        room: &mut Room,
    ) {
        if queue.is_empty() {
            return;
        }
        match (hours, canary) {
            // When restarts are deferred, the change itself may be made at any hour.
            (Hours::Closed { opens }, _) if policy.reboot == Reboot::Immediate => {
                let opens = opens.clone();
                self.hold(queue, &Waiting::OutsideWindow { opens: opens.clone() });
                self.halted = Some(Halted::OutsideWindow { opens });
            }
            (_, Canary::Soaking { until }) => {
                self.hold(queue, &Waiting::Soaking { until: until.clone() });
                self.halted = Some(Halted::Soaking { until: until.clone() });
            }
            (_, Canary::Going { room: 0, unfinished }) => {
                self.hold(queue, &Waiting::Canary { machines: unfinished.clone().into() });
            }
            _ if room.left == 0 => self.hold(queue, &room.none_left()),
            (_, canary) => {
                let (most, mut first) = match canary {
                    Canary::Going { room, unfinished } => (*room, unfinished.clone()),
                    _ => (queue.len(), Vec::new()),
                };
                self.next = room.take(most, queue);
                first.extend(self.next.iter().cloned());
                let behind = Waiting::Canary { machines: first.into() };
                for (ahead, view) in queue.iter().enumerate().skip(self.next.len()) {
                    let reason =
                        if ahead < most { Waiting::NotItsTurn { ahead } } else { behind.clone() };
                    self.waiting.insert(view.name().to_owned(), reason);
                }
            }
        }
    }

    /// When all that is left are restarts, the rollout stands still until they are allowed.
    fn halt_for_restarts(&mut self) {
        let idle = self.next.is_empty() && self.restart.is_empty() && self.halted.is_none();
        let mut opening = None;
        for reason in self.waiting.values() {
            let Waiting::RestartPending { opens } = reason else { return };
            opening.clone_from(opens);
        }
        if !idle || self.waiting.is_empty() {
            return;
        }
        self.halted = Some(match opening {
            Some(opens) => Halted::OutsideWindow { opens },
            None => Halted::RestartsPending { machines: self.waiting.keys().cloned().collect() },
        });
    }

    fn wake(&mut self, hours: &Hours, canary: &Canary) {
        if self.waiting.is_empty() && self.next.is_empty() && self.restart.is_empty() {
            return;
        }
        let soaked = match canary {
            Canary::Soaking { until } => Some(until.clone()),
            _ => None,
        };
        let window = match hours {
            Hours::Always => None,
            Hours::Open { closes } => Some(closes.clone()),
            Hours::Closed { opens } => Some(opens.clone()),
        };
        self.wake = soaked.into_iter().chain(window).min();
    }
}
