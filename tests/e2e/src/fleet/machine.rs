//! One simulated machine: a state machine without I/O. Annotations and timers go in, annotations come out.

use super::ANNOTATION_PREFIX;
use super::behaviour::{AttemptOutcome, MachineBehaviour};
use std::collections::BTreeMap;
use std::time::Duration;

/// The phase of an update that a machine is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdatePhase {
    /// Nothing to do.
    Idle,
    /// Waits for the drain controller.
    Draining,
    /// Writes to its disk.
    Applying,
    /// Has written to its disk, and waits for permission to reboot.
    AwaitingRebootPermission,
    /// Is rebooting.
    Rebooting,
    /// Waits for the drain controller to uncordon it.
    Uncordoning,
    /// Waits before it retries.
    Failed,
}

/// What the runner must do for a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineEffect {
    /// Write annotations, named without the protocol's prefix. Our own annotations include theirs; an empty one is
    /// removed.
    Annotate(Vec<(&'static str, String)>),
    /// Report Ready or NotReady.
    Ready(bool),
    /// Wake the machine after a while.
    SetTimer(Duration),
}

/// How long a failed machine waits before it retries.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// The controller writes this with a config whose reboot is deferred.
const REBOOT_ANNOTATION: &str = "machinist.dev/reboot";
/// The config that a machine has applied except for the reboot.
const RESTART_PENDING_ANNOTATION: &str = "machinist.dev/restart-pending";
/// The config for which a machine may reboot.
const RESTART_ANNOTATION: &str = "machinist.dev/restart";

/// A simulated machine.
#[derive(Debug, Clone)]
pub struct SimulatedMachine {
    name: String,
    seed: u64,
    phase: UpdatePhase,
    /// The config on its disk. Unknown until the machine has seen its node.
    config_on_disk: Option<String>,
    target: String,
    attempt: u32,
    /// The last request that the drain controller has completed, as far as the machine has seen.
    drained: String,
    /// Whether it must not reboot by itself.
    deferred: bool,
    /// The config for which it may reboot, as far as the machine has seen.
    reboot_permitted_for: String,
    /// Whether the target is on its disk and only the reboot is missing.
    is_applied: bool,
    /// The number of the current timer. Timers of an earlier phase are ignored.
    timer_id: u32,
}

impl SimulatedMachine {
    /// An idle machine.
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

    /// The current phase.
    pub fn phase(&self) -> &UpdatePhase {
        &self.phase
    }

    /// The number of the current timer.
    pub fn timer_id(&self) -> u32 {
        self.timer_id
    }

    /// What happens to it in the current attempt.
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
        // The node may be older than the machine's last write, so the machine trusts its disk. Only the first
        // observation shows what an earlier boot left unfinished.
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
                // A new target starts a new attempt immediately.
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

    /// A timer has fired; `timer_id` is its number.
    pub fn timer_fired(
        &mut self,
        behaviour: &MachineBehaviour,
        timer_id: u32,
    ) -> Vec<MachineEffect> {
        if timer_id != self.timer_id {
            return Vec::new();
        }
        let outcome = self.outcome(behaviour);
        match self.phase {
            UpdatePhase::Applying if outcome.crashes => {
                // The machine loses its state. The next observation makes it start over.
                self.attempt += 1;
                self.start_update(behaviour, "Working")
            }
            UpdatePhase::Applying if outcome.fails => {
                self.attempt += 1;
                self.enter(UpdatePhase::Failed);
                let reason = format!("simulated failure of {}", self.target);
                let says = vec![("state", "Degraded".to_owned()), ("reason", reason)];
                vec![MachineEffect::Annotate(says), MachineEffect::SetTimer(RETRY_DELAY)]
            }
            UpdatePhase::Applying if outcome.reboot.is_none() => self.resume(behaviour),
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
        // A degraded machine reports Degraded until it is done, so that the state does not flap.
        if state != "Degraded" && state != "Unreconcilable" {
            says.push(("state", "Working".to_owned()));
        }
        self.is_applied = false;
        // A machine whose reboot is deferred keeps its pods until then.
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

    /// The request to the drain controller, if one is needed. A machine that starts over may already be drained, and
    /// nobody would report that again.
    fn drain_request(&self, behaviour: &MachineBehaviour) -> Option<String> {
        let request = format!("drain-{}", self.target);
        (behaviour.drain && self.drained != request).then_some(request)
    }

    /// The permission to reboot has arrived.
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
