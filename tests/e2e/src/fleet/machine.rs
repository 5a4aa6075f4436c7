//! One simulated machine: a state machine without I/O. Annotations and timers go in, annotations come out.

use super::PREFIX;
use super::behaviour::{Behaviour, Fate};
use std::collections::BTreeMap;
use std::time::Duration;

/// Where a machine is in an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Nothing to do.
    Idle,
    /// Waits for the drain controller.
    Draining,
    /// Changes its disk.
    Applying,
    /// Has changed its disk, and waits for the permission to restart.
    AwaitingRestart,
    /// Is down.
    Rebooting,
    /// Waits for the drain controller to let pods back.
    Uncordoning,
    /// Waits before it tries again.
    Failed,
}

/// What a machine wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Write annotations, named without their prefix. Those of our own have theirs, and an empty one of them is removed.
    Annotate(Vec<(&'static str, String)>),
    /// Report Ready or not.
    Ready(bool),
    /// Wake the machine after a while.
    Wake(Duration),
}

/// How long a machine that has failed waits.
const RETRY: Duration = Duration::from_millis(500);

/// What a controller writes with a config whose restart has to wait: `deferred`.
const REBOOT: &str = "machinist.dev/reboot";
/// The config that a machine has but for a restart.
const RESTART_PENDING: &str = "machinist.dev/restart-pending";
/// The config for whose sake a machine may restart.
const RESTART: &str = "machinist.dev/restart";

/// A simulated machine.
#[derive(Debug, Clone)]
pub struct Simulated {
    name: String,
    seed: u64,
    phase: Phase,
    /// The config on its disk; unknown until it has seen its node.
    disk: Option<String>,
    target: String,
    attempt: u32,
    /// The last request that the drain controller has carried out, as far as the machine has seen.
    drained: String,
    /// Whether it may not restart by itself.
    deferred: bool,
    /// The config for whose sake it may restart, as far as the machine has seen.
    permitted: String,
    /// Whether the target is on its disk, all but for a restart.
    is_applied: bool,
    /// Wakes that were asked for and have not come. Those of an earlier phase are ignored.
    clock: u32,
}

impl Simulated {
    /// A machine that has nothing to do yet.
    pub fn new(name: &str, seed: u64) -> Self {
        Self {
            name: name.to_owned(),
            seed,
            phase: Phase::Idle,
            disk: None,
            target: String::new(),
            attempt: 0,
            drained: String::new(),
            deferred: false,
            permitted: String::new(),
            is_applied: false,
            clock: 0,
        }
    }

    /// Where it is.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The number that the next wake has to carry.
    pub fn clock(&self) -> u32 {
        self.clock
    }

    /// What happens to it in the present attempt.
    pub fn fate(&self, behaviour: &Behaviour) -> Fate {
        behaviour.fate(self.seed, &self.name, &self.target, self.attempt)
    }

    /// The machine sees its node.
    pub fn observe(
        &mut self,
        behaviour: &Behaviour,
        annotations: &BTreeMap<String, String>,
    ) -> Vec<Effect> {
        let get = |key: &str| {
            annotations.get(&format!("{PREFIX}/{key}")).map(String::as_str).unwrap_or_default()
        };
        let (current, desired, state) = (get("currentConfig"), get("desiredConfig"), get("state"));
        get("lastAppliedDrain").clone_into(&mut self.drained);
        let ours = |key: &str| annotations.get(key).map(String::as_str).unwrap_or_default();
        self.deferred = ours(REBOOT) == "deferred";
        ours(RESTART).clone_into(&mut self.permitted);
        let drained = |verb: &str| self.drained == format!("{verb}-{}", self.target);
        // What it sees may be older than what it has written last, so it trusts its disk. Only the first look tells it
        // what an earlier life has left unfinished.
        let disk = self.disk.get_or_insert_with(|| {
            if state == "Done" { current.to_owned() } else { String::new() }
        });
        match self.phase {
            Phase::Idle if !desired.is_empty() && disk != desired => {
                if self.target != desired {
                    self.attempt = 0;
                }
                desired.clone_into(&mut self.target);
                self.begin(behaviour, state)
            }
            Phase::Failed | Phase::AwaitingRestart
                if !desired.is_empty() && self.target != desired =>
            {
                // A new target is worth a new attempt at once.
                desired.clone_into(&mut self.target);
                self.attempt = 0;
                self.begin(behaviour, state)
            }
            Phase::AwaitingRestart if self.permitted == self.target => self.restart(behaviour),
            Phase::Draining if drained("drain") && self.is_applied => self.go_down(behaviour),
            Phase::Draining if drained("drain") => self.apply(behaviour),
            Phase::Uncordoning if drained("uncordon") => self.finish(),
            _ => Vec::new(),
        }
    }

    /// A wake that was asked for; `clock` is the machine's clock when it was.
    pub fn wake(&mut self, behaviour: &Behaviour, clock: u32) -> Vec<Effect> {
        if clock != self.clock {
            return Vec::new();
        }
        let fate = self.fate(behaviour);
        match self.phase {
            Phase::Applying if fate.crashes => {
                // It forgets everything; what it sees next makes it start over.
                self.attempt += 1;
                self.begin(behaviour, "Working")
            }
            Phase::Applying if fate.fails => {
                self.attempt += 1;
                self.enter(Phase::Failed);
                let reason = format!("simulated failure of {}", self.target);
                let says = vec![("state", "Degraded".to_owned()), ("reason", reason)];
                vec![Effect::Annotate(says), Effect::Wake(RETRY)]
            }
            Phase::Applying if fate.reboot.is_none() => self.resume(behaviour),
            Phase::Applying if self.deferred => {
                self.is_applied = true;
                let mut effects =
                    vec![Effect::Annotate(vec![(RESTART_PENDING, self.target.clone())])];
                if self.permitted == self.target {
                    effects.extend(self.restart(behaviour));
                } else {
                    self.enter(Phase::AwaitingRestart);
                }
                effects
            }
            Phase::Applying => self.go_down(behaviour),
            Phase::Rebooting => {
                let mut effects = vec![Effect::Ready(true)];
                effects.extend(self.resume(behaviour));
                effects
            }
            Phase::Failed => self.begin(behaviour, "Degraded"),
            Phase::Idle | Phase::Draining | Phase::AwaitingRestart | Phase::Uncordoning => {
                Vec::new()
            }
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.clock += 1;
    }

    fn begin(&mut self, behaviour: &Behaviour, state: &str) -> Vec<Effect> {
        let mut says = Vec::new();
        // A machine that is degraded says so until it is done, so that the state does not flap.
        if state != "Degraded" && state != "Unreconcilable" {
            says.push(("state", "Working".to_owned()));
        }
        self.is_applied = false;
        // Whoever restarts later keeps its pods until then.
        let waits = self.deferred && self.fate(behaviour).reboot.is_some();
        if let Some(request) = self.drain_request(behaviour).filter(|_| !waits) {
            self.enter(Phase::Draining);
            says.push(("desiredDrain", request));
            return vec![Effect::Annotate(says)];
        }
        let mut effects = vec![Effect::Annotate(says)];
        effects.extend(self.apply(behaviour));
        effects
    }

    /// What it has to ask of the drain controller, if anything. One that starts over may be empty already: nobody would
    /// tell it again.
    fn drain_request(&self, behaviour: &Behaviour) -> Option<String> {
        let request = format!("drain-{}", self.target);
        (behaviour.drain && self.drained != request).then_some(request)
    }

    /// The permission to restart is there.
    fn restart(&mut self, behaviour: &Behaviour) -> Vec<Effect> {
        let Some(request) = self.drain_request(behaviour) else { return self.go_down(behaviour) };
        self.enter(Phase::Draining);
        vec![Effect::Annotate(vec![("desiredDrain", request)])]
    }

    fn go_down(&mut self, behaviour: &Behaviour) -> Vec<Effect> {
        self.enter(Phase::Rebooting);
        let time = self.fate(behaviour).reboot.unwrap_or_default();
        let says = vec![("post-config-action", "Rebooting".to_owned())];
        vec![Effect::Annotate(says), Effect::Ready(false), Effect::Wake(time)]
    }

    fn apply(&mut self, behaviour: &Behaviour) -> Vec<Effect> {
        self.enter(Phase::Applying);
        vec![Effect::Wake(self.fate(behaviour).apply)]
    }

    fn resume(&mut self, behaviour: &Behaviour) -> Vec<Effect> {
        if behaviour.drain {
            self.enter(Phase::Uncordoning);
            let request = format!("uncordon-{}", self.target);
            return vec![Effect::Annotate(vec![("desiredDrain", request)])];
        }
        self.finish()
    }

    fn finish(&mut self) -> Vec<Effect> {
        self.enter(Phase::Idle);
        self.attempt = 0;
        self.disk = Some(self.target.clone());
        let mut says = vec![
            ("currentConfig", self.target.clone()),
            ("state", "Done".to_owned()),
            ("reason", String::new()),
            ("post-config-action", String::new()),
        ];
        if self.is_applied {
            says.extend([(RESTART_PENDING, String::new()), (RESTART, String::new())]);
        }
        vec![Effect::Annotate(says)]
    }
}

#[cfg(test)]
mod tests;
