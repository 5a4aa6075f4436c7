//! One simulated machine: a state machine without I/O. Annotations and timers go in, annotations come out.

use super::ANNOTATION_PREFIX;
use super::behaviour::{AttemptOutcome, MachineBehaviour};
use std::collections::BTreeMap;
use std::time::Duration;

/// Where a machine is in an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdatePhase {
    /// Nothing to do.
    Idle,
    /// Waits for the drain controller.
    Draining,
    /// Changes its disk.
    Applying,
    /// Has changed its disk, and waits for the permission to restart.
    AwaitingRebootPermission,
    /// Is down.
    Rebooting,
    /// Waits for the drain controller to let pods back.
    Uncordoning,
    /// Waits before it tries again.
    Failed,
}

/// What a machine wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineEffect {
    /// Write annotations, named without their prefix. Those of our own have theirs, and an empty one of them is removed.
    Annotate(Vec<(&'static str, String)>),
    /// Report Ready or not.
    Ready(bool),
    /// Wake the machine after a while.
    SetTimer(Duration),
}

/// How long a machine that has failed waits.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// What a controller writes with a config whose restart has to wait: `deferred`.
const REBOOT_ANNOTATION: &str = "machinist.dev/reboot";
/// The config that a machine has but for a restart.
const RESTART_PENDING_ANNOTATION: &str = "machinist.dev/restart-pending";
/// The config for whose sake a machine may restart.
const RESTART_ANNOTATION: &str = "machinist.dev/restart";

/// A simulated machine.
#[derive(Debug, Clone)]
pub struct SimulatedMachine {
    name: String,
    seed: u64,
    phase: UpdatePhase,
    /// The config on its disk; unknown until it has seen its node.
    config_on_disk: Option<String>,
    target: String,
    attempt: u32,
    /// The last request that the drain controller has carried out, as far as the machine has seen.
    drained: String,
    /// Whether it may not restart by itself.
    deferred: bool,
    /// The config for whose sake it may restart, as far as the machine has seen.
    reboot_permitted_for: String,
    /// Whether the target is on its disk, all but for a restart.
    is_applied: bool,
    /// Wakes that were asked for and have not come. Those of an earlier phase are ignored.
    timer_id: u32,
}

impl SimulatedMachine {
    /// A machine that has nothing to do yet.
    pub fn new(name: &str, seed: u64) -> Self {
        Self {
            name: name.to_owned(),
            seed,
            phase: UpdatePhase::Idle,
            config_on_disk: None,
            target: String::new(),
            attempt: 0,
            drained: String::new(),
            deferred: false,
            reboot_permitted_for: String::new(),
            is_applied: false,
            timer_id: 0,
        }
    }

    /// Where it is.
    pub fn phase(&self) -> &UpdatePhase {
        &self.phase
    }

    /// The number that the next wake has to carry.
    pub fn timer_id(&self) -> u32 {
        self.timer_id
    }

    /// What happens to it in the present attempt.
    pub fn outcome(&self, behaviour: &MachineBehaviour) -> AttemptOutcome {
        behaviour.outcome(self.seed, &self.name, &self.target, self.attempt)
    }

    /// The machine sees its node.
    pub fn observe(
        &mut self,
        behaviour: &MachineBehaviour,
        annotations: &BTreeMap<String, String>,
    ) -> Vec<MachineEffect> {
        let get = |key: &str| {
            annotations
                .get(&format!("{ANNOTATION_PREFIX}/{key}"))
                .map(String::as_str)
                .unwrap_or_default()
        };
        let (current, desired, state) = (get("currentConfig"), get("desiredConfig"), get("state"));
        get("lastAppliedDrain").clone_into(&mut self.drained);
        let ours = |key: &str| annotations.get(key).map(String::as_str).unwrap_or_default();
        self.deferred = ours(REBOOT_ANNOTATION) == "deferred";
        ours(RESTART_ANNOTATION).clone_into(&mut self.reboot_permitted_for);
        let drained = |verb: &str| self.drained == format!("{verb}-{}", self.target);
        // What it sees may be older than what it has written last, so it trusts its disk. Only the first look tells it
        // what an earlier life has left unfinished.
        let disk = self.config_on_disk.get_or_insert_with(|| {
            if state == "Done" { current.to_owned() } else { String::new() }
        });
        match self.phase {
            UpdatePhase::Idle if !desired.is_empty() && disk != desired => {
                if self.target != desired {
                    self.attempt = 0;
                }
                desired.clone_into(&mut self.target);
                self.start_update(behaviour, state)
            }
            UpdatePhase::Failed | UpdatePhase::AwaitingRebootPermission
                if !desired.is_empty() && self.target != desired =>
            {
                // A new target is worth a new attempt at once.
                desired.clone_into(&mut self.target);
                self.attempt = 0;
                self.start_update(behaviour, state)
            }
            UpdatePhase::AwaitingRebootPermission if self.reboot_permitted_for == self.target => {
                self.reboot_permitted(behaviour)
            }
            UpdatePhase::Draining if drained("drain") && self.is_applied => {
                self.start_reboot(behaviour)
            }
            UpdatePhase::Draining if drained("drain") => self.apply(behaviour),
            UpdatePhase::Uncordoning if drained("uncordon") => self.finish(),
            _ => Vec::new(),
        }
    }

    /// A wake that was asked for; `clock` is the machine's clock when it was.
    pub fn timer_fired(&mut self, behaviour: &MachineBehaviour, clock: u32) -> Vec<MachineEffect> {
        if clock != self.timer_id {
            return Vec::new();
        }
        let fate = self.outcome(behaviour);
        match self.phase {
            UpdatePhase::Applying if fate.crashes => {
                // It forgets everything; what it sees next makes it start over.
                self.attempt += 1;
                self.start_update(behaviour, "Working")
            }
            UpdatePhase::Applying if fate.fails => {
                self.attempt += 1;
                self.enter(UpdatePhase::Failed);
                let reason = format!("simulated failure of {}", self.target);
                let says = vec![("state", "Degraded".to_owned()), ("reason", reason)];
                vec![MachineEffect::Annotate(says), MachineEffect::SetTimer(RETRY_DELAY)]
            }
            UpdatePhase::Applying if fate.reboot.is_none() => self.resume(behaviour),
            UpdatePhase::Applying if self.deferred => {
                self.is_applied = true;
                let mut effects = vec![MachineEffect::Annotate(vec![(
                    RESTART_PENDING_ANNOTATION,
                    self.target.clone(),
                )])];
                if self.reboot_permitted_for == self.target {
                    effects.extend(self.reboot_permitted(behaviour));
                } else {
                    self.enter(UpdatePhase::AwaitingRebootPermission);
                }
                effects
            }
            UpdatePhase::Applying => self.start_reboot(behaviour),
            UpdatePhase::Rebooting => {
                let mut effects = vec![MachineEffect::Ready(true)];
                effects.extend(self.resume(behaviour));
                effects
            }
            UpdatePhase::Failed => self.start_update(behaviour, "Degraded"),
            UpdatePhase::Idle
            | UpdatePhase::Draining
            | UpdatePhase::AwaitingRebootPermission
            | UpdatePhase::Uncordoning => Vec::new(),
        }
    }

    fn enter(&mut self, phase: UpdatePhase) {
        self.phase = phase;
        self.timer_id += 1;
    }

    fn start_update(&mut self, behaviour: &MachineBehaviour, state: &str) -> Vec<MachineEffect> {
        let mut says = Vec::new();
        // A machine that is degraded says so until it is done, so that the state does not flap.
        if state != "Degraded" && state != "Unreconcilable" {
            says.push(("state", "Working".to_owned()));
        }
        self.is_applied = false;
        // Whoever restarts later keeps its pods until then.
        let waits = self.deferred && self.outcome(behaviour).reboot.is_some();
        if let Some(request) = self.drain_request(behaviour).filter(|_| !waits) {
            self.enter(UpdatePhase::Draining);
            says.push(("desiredDrain", request));
            return vec![MachineEffect::Annotate(says)];
        }
        let mut effects = vec![MachineEffect::Annotate(says)];
        effects.extend(self.apply(behaviour));
        effects
    }

    /// What it has to ask of the drain controller, if anything. One that starts over may be empty already: nobody would
    /// tell it again.
    fn drain_request(&self, behaviour: &MachineBehaviour) -> Option<String> {
        let request = format!("drain-{}", self.target);
        (behaviour.drain && self.drained != request).then_some(request)
    }

    /// The permission to restart is there.
    fn reboot_permitted(&mut self, behaviour: &MachineBehaviour) -> Vec<MachineEffect> {
        let Some(request) = self.drain_request(behaviour) else {
            return self.start_reboot(behaviour);
        };
        self.enter(UpdatePhase::Draining);
        vec![MachineEffect::Annotate(vec![("desiredDrain", request)])]
    }

    fn start_reboot(&mut self, behaviour: &MachineBehaviour) -> Vec<MachineEffect> {
        self.enter(UpdatePhase::Rebooting);
        let time = self.outcome(behaviour).reboot.unwrap_or_default();
        let says = vec![("post-config-action", "Rebooting".to_owned())];
        vec![
            MachineEffect::Annotate(says),
            MachineEffect::Ready(false),
            MachineEffect::SetTimer(time),
        ]
    }

    fn apply(&mut self, behaviour: &MachineBehaviour) -> Vec<MachineEffect> {
        self.enter(UpdatePhase::Applying);
        vec![MachineEffect::SetTimer(self.outcome(behaviour).apply)]
    }

    fn resume(&mut self, behaviour: &MachineBehaviour) -> Vec<MachineEffect> {
        if behaviour.drain {
            self.enter(UpdatePhase::Uncordoning);
            let request = format!("uncordon-{}", self.target);
            return vec![MachineEffect::Annotate(vec![("desiredDrain", request)])];
        }
        self.finish()
    }

    fn finish(&mut self) -> Vec<MachineEffect> {
        self.enter(UpdatePhase::Idle);
        self.attempt = 0;
        self.config_on_disk = Some(self.target.clone());
        let mut says = vec![
            ("currentConfig", self.target.clone()),
            ("state", "Done".to_owned()),
            ("reason", String::new()),
            ("post-config-action", String::new()),
        ];
        if self.is_applied {
            says.extend([
                (RESTART_PENDING_ANNOTATION, String::new()),
                (RESTART_ANNOTATION, String::new()),
            ]);
        }
        vec![MachineEffect::Annotate(says)]
    }
}

#[cfg(test)]
mod tests;
