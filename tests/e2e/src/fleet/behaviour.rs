//! What may happen to simulated machines, and what happens to each of them: a pure function of the seed.

use std::hash::{Hash as _, Hasher};
use std::ops::RangeInclusive;
use std::time::Duration;

/// What may happen to the machines of a fleet. Chances are in percent.
#[derive(Debug, Clone)]
pub struct MachineBehaviour {
    /// How long applying a config takes, in milliseconds.
    pub apply: RangeInclusive<u64>,
    /// How long a reboot takes, in milliseconds; `None` for changes that need none.
    pub reboot: Option<RangeInclusive<u64>>,
    /// Whether machines request a drain before and an uncordon after.
    pub drain: bool,
    /// The chance that applying fails. The machine reports Degraded and retries.
    pub failure: u8,
    /// The chance that the machine loses its state half-way and starts over.
    pub crash: u8,
    /// The chance that the response to a write is lost, so that the machine repeats the write.
    pub lost_response: u8,
}

impl Default for MachineBehaviour {
    fn default() -> Self {
        Self { apply: 0..=0, reboot: None, drain: false, failure: 0, crash: 0, lost_response: 0 }
    }
}

/// What happens to one machine in one attempt to reach one config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptOutcome {
    /// How long applying takes.
    pub apply: Duration,
    /// How long the reboot takes, if there is one.
    pub reboot: Option<Duration>,
    /// Whether applying fails.
    pub fails: bool,
    /// Whether the machine crashes while applying.
    pub crashes: bool,
    /// Whether the responses to its writes are lost.
    pub loses_response: bool,
}

impl MachineBehaviour {
    /// What happens to a machine in its n-th attempt at a config. The third attempt always succeeds, so that every
    /// rollout ends.
    pub fn outcome(&self, seed: u64, machine: &str, config: &str, attempt: u32) -> AttemptOutcome {
        let mut dice = SeededRandom::new(seed, machine, config, attempt);
        let apply = dice.duration_in(&self.apply);
        let reboot = self.reboot.as_ref().map(|range| dice.duration_in(range));
        let may_go_wrong = attempt < 2;
        AttemptOutcome {
            apply,
            reboot,
            fails: dice.chance(self.failure) && may_go_wrong,
            crashes: dice.chance(self.crash) && may_go_wrong,
            loses_response: dice.chance(self.lost_response),
        }
    }
}

/// A small generator (SplitMix64). Libraries do not promise the same numbers across versions; this does.
struct SeededRandom(u64);

impl SeededRandom {
    fn new(seed: u64, machine: &str, config: &str, attempt: u32) -> Self {
        let mut hash = FnvHasher(0xcbf2_9ce4_8422_2325 ^ seed);
        (machine, config).hash(&mut hash);
        hash.write_u32(attempt);
        Self(hash.finish())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn duration_in(&mut self, range: &RangeInclusive<u64>) -> Duration {
        let width = range.end().saturating_sub(*range.start()) + 1;
        Duration::from_millis(range.start() + self.next() % width)
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.next() % 100 < u64::from(percent)
    }
}

struct FnvHasher(u64);

impl Hasher for FnvHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_outcome() {
        let behaviour =
            MachineBehaviour { apply: 0..=5000, failure: 50, ..MachineBehaviour::default() };
        let outcomes = |seed| -> Vec<_> {
            (0..50).map(|n| behaviour.outcome(seed, &format!("m{n}"), "c", 0)).collect()
        };
        assert_eq!(outcomes(7), outcomes(7));
        assert_ne!(outcomes(7), outcomes(8));
        let failing = outcomes(7).iter().filter(|outcome| outcome.fails).count();
        assert!((10..40).contains(&failing), "{failing}");
    }

    #[test]
    fn the_third_attempt_succeeds() {
        let behaviour =
            MachineBehaviour { failure: 100, crash: 100, ..MachineBehaviour::default() };
        assert!(behaviour.outcome(1, "m", "c", 1).fails);
        let third = behaviour.outcome(1, "m", "c", 2);
        assert!(!third.fails && !third.crashes);
    }
}
