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
    /// Write annotations, named without their prefix.
    Annotate(Vec<(&'static str, String)>),
    /// Report Ready or not.
    Ready(bool),
    /// Wake the machine after a while.
    Wake(Duration),
}

/// How long a machine that has failed waits.
const RETRY: Duration = Duration::from_millis(500);

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
    /// Wakes that were asked for and have not come. Those of an earlier phase are ignored.
    clock: u32,
}

impl Simulated {
    /// A machine that has nothing to do yet.
    pub fn new(name: &str, seed: u64) -> Self {
        let (name, target, drained) = (name.to_owned(), String::new(), String::new());
        Self { name, seed, phase: Phase::Idle, disk: None, target, attempt: 0, drained, clock: 0 }
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
            Phase::Failed if !desired.is_empty() && self.target != desired => {
                // A new target is worth a new attempt at once.
                desired.clone_into(&mut self.target);
                self.attempt = 0;
                self.begin(behaviour, state)
            }
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
            Phase::Applying => match fate.reboot {
                Some(time) => {
                    self.enter(Phase::Rebooting);
                    let says = vec![("post-config-action", "Rebooting".to_owned())];
                    vec![Effect::Annotate(says), Effect::Ready(false), Effect::Wake(time)]
                }
                None => self.resume(behaviour),
            },
            Phase::Rebooting => {
                let mut effects = vec![Effect::Ready(true)];
                effects.extend(self.resume(behaviour));
                effects
            }
            Phase::Failed => self.begin(behaviour, "Degraded"),
            Phase::Idle | Phase::Draining | Phase::Uncordoning => Vec::new(),
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
        let request = format!("drain-{}", self.target);
        // One that starts over may be empty already: nobody would tell it again.
        if behaviour.drain && self.drained != request {
            self.enter(Phase::Draining);
            says.push(("desiredDrain", request));
            return vec![Effect::Annotate(says)];
        }
        let mut effects = vec![Effect::Annotate(says)];
        effects.extend(self.apply(behaviour));
        effects
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
        vec![Effect::Annotate(vec![
            ("currentConfig", self.target.clone()),
            ("state", "Done".to_owned()),
            ("reason", String::new()),
            ("post-config-action", String::new()),
        ])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (format!("{PREFIX}/{key}"), (*value).to_owned())).collect()
    }

    const TARGETED: [(&str, &str); 3] =
        [("currentConfig", "a"), ("desiredConfig", "b"), ("state", "Done")];

    fn said(effects: &[Effect]) -> Vec<String> {
        let words = effects.iter().flat_map(|effect| match effect {
            Effect::Annotate(says) => says.iter().map(|(k, v)| format!("{k}={v}")).collect(),
            Effect::Ready(is) => vec![format!("ready={is}")],
            Effect::Wake(_) => vec!["wake".to_owned()],
        });
        words.collect()
    }

    #[test]
    fn an_update_with_drain_and_reboot_takes_the_steps_in_order() {
        let behaviour = Behaviour { drain: true, reboot: Some(1..=1), ..Behaviour::default() };
        let mut machine = Simulated::new("m", 1);
        let seen = machine.observe(&behaviour, &annotations(&TARGETED));
        assert_eq!(said(&seen), ["state=Working", "desiredDrain=drain-b"]);
        assert!(machine.observe(&behaviour, &annotations(&TARGETED)).is_empty());
        let mut drained = annotations(&TARGETED);
        drained.insert(format!("{PREFIX}/lastAppliedDrain"), "drain-b".to_owned());
        assert_eq!(said(&machine.observe(&behaviour, &drained)), ["wake"]);
        let down = machine.wake(&behaviour, machine.clock());
        assert_eq!(said(&down), ["post-config-action=Rebooting", "ready=false", "wake"]);
        let up = machine.wake(&behaviour, machine.clock());
        assert_eq!(said(&up), ["ready=true", "desiredDrain=uncordon-b"]);
        drained.insert(format!("{PREFIX}/lastAppliedDrain"), "uncordon-b".to_owned());
        let done = said(&machine.observe(&behaviour, &drained));
        assert_eq!(done, ["currentConfig=b", "state=Done", "reason=", "post-config-action="]);
        assert_eq!(machine.phase(), &Phase::Idle);
    }

    #[test]
    fn a_failure_is_reported_and_tried_again_without_flapping() {
        let behaviour = Behaviour { failure: 100, ..Behaviour::default() };
        let mut machine = Simulated::new("m", 1);
        machine.observe(&behaviour, &annotations(&TARGETED));
        let failed = said(&machine.wake(&behaviour, machine.clock()));
        assert_eq!(failed, ["state=Degraded", "reason=simulated failure of b", "wake"]);
        assert_eq!(said(&machine.wake(&behaviour, machine.clock())), ["wake"]);
        machine.wake(&behaviour, machine.clock());
        machine.wake(&behaviour, machine.clock());
        let done = said(&machine.wake(&behaviour, machine.clock()));
        assert_eq!(done[0], "currentConfig=b");
    }

    #[test]
    fn one_that_starts_over_does_not_ask_for_a_drain_that_it_has() {
        let behaviour = Behaviour { drain: true, failure: 100, ..Behaviour::default() };
        let mut machine = Simulated::new("m", 1);
        machine.observe(&behaviour, &annotations(&TARGETED));
        let mut drained = annotations(&TARGETED);
        drained.insert(format!("{PREFIX}/lastAppliedDrain"), "drain-b".to_owned());
        machine.observe(&behaviour, &drained);
        machine.wake(&behaviour, machine.clock());
        assert_eq!(machine.phase(), &Phase::Failed);
        machine.wake(&behaviour, machine.clock());
        assert_eq!(machine.phase(), &Phase::Applying);
    }

    #[test]
    fn a_wake_of_an_earlier_phase_is_ignored() {
        let behaviour = Behaviour::default();
        let mut machine = Simulated::new("m", 1);
        machine.observe(&behaviour, &annotations(&TARGETED));
        let clock = machine.clock();
        machine.wake(&behaviour, clock);
        assert!(machine.wake(&behaviour, clock).is_empty());
    }
}
