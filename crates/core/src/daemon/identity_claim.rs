//! Who acts as a machine, if two do: a machine that was cloned after it joined has the identity of the first one.
//!
//! Each daemon writes a claim to its Node, and watches it. A daemon that finds the claim of another boot replaces it: the
//! machine has rebooted, and nobody objects. If another machine does run, its daemon sees the new claim, and the one that
//! claimed first writes its claim again. The later one sees that, and is refused.
//!
//! An earlier claim may also be one that nobody holds any more: an API server that was restored has the claim of a boot
//! before this one. So the later daemon writes its own claim once more, and yields if the other one objects again. Called
//! by `daemon/agent/identity` in the shell.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How long a daemon waits for an objection after it has replaced the claim of another boot.
pub const CLAIM_GRACE: Duration = Duration::from_secs(1);
/// A daemon that finds an earlier claim again this soon after it has replaced it is not alone.
pub const CHALLENGE_WINDOW: Duration = Duration::from_secs(300);
/// After this long a refused daemon claims again: the other machine may be gone.
pub const REFUSED_RETRY_INTERVAL: Duration = Duration::from_secs(300);

/// Who runs under an identity: the value of an annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityClaim {
    /// The boot of the machine.
    pub boot: String,
    /// The machine ID. Clones may share it.
    pub machine: String,
    /// When it was claimed, in milliseconds since 1970, by the clock of the machine. Seconds would let the later of two
    /// machines that start together win.
    pub since: u64,
}

impl fmt::Display for IdentityClaim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} {}", self.boot, self.machine, self.since)
    }
}

impl FromStr for IdentityClaim {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let (Some(boot), Some(machine), Some(since), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(());
        };
        let since = since.parse().map_err(|_| ())?;
        Ok(Self { boot: boot.to_owned(), machine: machine.to_owned(), since })
    }
}

impl IdentityClaim {
    /// Whether this one was first. Two claims never precede each other, whatever the clocks say.
    fn precedes(&self, other: &Self) -> bool {
        (self.since, &self.boot) < (other.since, &other.boot)
    }

    /// The machine, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("machine-id {}, boot {}", self.machine, self.boot)
    }
}

/// What the daemon knows about its own claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ClaimState {
    /// Not claimed since the daemon started.
    #[default]
    Unclaimed,
    /// This machine has the claim.
    Holding {
        /// The claim.
        claim: IdentityClaim,
        /// Until then another machine may object, since the daemon started.
        acts_at: Duration,
        /// When the daemon last replaced an earlier claim with its own, since it started.
        challenged_at: Option<Duration>,
    },
    /// Another machine has it.
    Refused {
        /// The other machine.
        by: IdentityClaim,
        /// When to claim again, since the daemon started.
        retry_at: Duration,
    },
}

impl ClaimState {
    /// When the daemon last replaced an earlier claim with its own.
    #[must_use]
    pub fn challenged_at(&self) -> Option<Duration> {
        match self {
            Self::Holding { challenged_at, .. } => *challenged_at,
            Self::Unclaimed | Self::Refused { .. } => None,
        }
    }
}

/// What the daemon does about its claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimStep {
    /// Nothing: the claim on the Node is this machine's.
    Keep {
        /// The claim.
        claim: IdentityClaim,
        /// How long to wait for an objection.
        pause: Duration,
    },
    /// Write a claim.
    Write {
        /// The claim.
        claim: IdentityClaim,
        /// Whether it replaces that of another boot, which may object.
        replaces: bool,
    },
    /// Write the earlier claim of this machine again, and report the other machine.
    Object {
        /// The claim.
        claim: IdentityClaim,
        /// The other machine, which is refused.
        refused: IdentityClaim,
    },
    /// Write the claim of this machine over an earlier one, which nobody may hold any more.
    Challenge {
        /// The claim.
        claim: IdentityClaim,
    },
    /// Stop acting: another machine was first.
    Yield(IdentityClaim),
    /// Wait: another machine has the claim.
    StayRefused {
        /// The other machine.
        by: IdentityClaim,
        /// The pause before the next claim.
        pause: Duration,
    },
}

/// Decides what a daemon does about its claim. `own` is a claim as it would be made now.
#[must_use]
pub fn claim_step(
    own: IdentityClaim,
    state: &ClaimState,
    on_node: Option<IdentityClaim>,
    now: Duration,
) -> ClaimStep {
    let Some(found) = on_node else {
        return ClaimStep::Write { claim: own, replaces: false };
    };
    if found.boot == own.boot {
        let pause = match state {
            ClaimState::Holding { acts_at, .. } => acts_at.saturating_sub(now),
            _ => Duration::ZERO,
        };
        return ClaimStep::Keep { claim: found, pause };
    }
    match state {
        ClaimState::Unclaimed => ClaimStep::Write { claim: own, replaces: true },
        ClaimState::Holding { claim, .. } if claim.precedes(&found) => {
            ClaimStep::Object { claim: claim.clone(), refused: found }
        }
        ClaimState::Holding { challenged_at: Some(at), .. }
            if now.saturating_sub(*at) < CHALLENGE_WINDOW =>
        {
            ClaimStep::Yield(found)
        }
        ClaimState::Holding { claim, .. } => ClaimStep::Challenge { claim: claim.clone() },
        ClaimState::Refused { retry_at, .. } if now >= *retry_at => {
            ClaimStep::Write { claim: own, replaces: true }
        }
        ClaimState::Refused { retry_at, .. } => {
            ClaimStep::StayRefused { by: found, pause: retry_at.saturating_sub(now) }
        }
    }
}

/// Why a machine is refused, and the remedy.
#[must_use]
pub fn refused_reason(node: &str, by: &IdentityClaim) -> String {
    format!(
        "another machine works as {node} ({}): this one is a clone of it, or was cloned; on the machine that should not be {node}, run machinist leave, and join it with a name of its own",
        by.describe()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(boot: &str, since: u64) -> IdentityClaim {
        IdentityClaim { boot: boot.to_owned(), machine: "m".to_owned(), since }
    }

    #[test]
    fn a_claim_is_read_as_it_is_written() {
        let one = claim("b", 7);
        assert_eq!(one.to_string().parse(), Ok(one));
        for text in ["", "b", "b m", "b m x", "b m 1 2", "b m -1"] {
            assert_eq!(text.parse::<IdentityClaim>(), Err(()), "{text}");
        }
    }

    #[test]
    fn a_machine_that_reboots_takes_its_own_claim_over() {
        let step = |state: &ClaimState, found| {
            claim_step(claim("new", 9), state, found, Duration::from_secs(10))
        };
        let write = |replaces| ClaimStep::Write { claim: claim("new", 9), replaces };
        assert_eq!(step(&ClaimState::Unclaimed, None), write(false));
        assert_eq!(step(&ClaimState::Unclaimed, Some(claim("old", 1))), write(true));
        // A daemon that restarts keeps the time of its claim.
        let kept = ClaimStep::Keep { claim: claim("new", 3), pause: Duration::ZERO };
        assert_eq!(step(&ClaimState::Unclaimed, Some(claim("new", 3))), kept);
        let holding = ClaimState::Holding {
            claim: claim("new", 9),
            acts_at: Duration::from_secs(11),
            challenged_at: None,
        };
        let waits = ClaimStep::Keep { claim: claim("new", 9), pause: Duration::from_secs(1) };
        assert_eq!(step(&holding, Some(claim("new", 9))), waits);
        // The other machine is gone, as far as anyone knows.
        let refused =
            |at| ClaimState::Refused { by: claim("old", 1), retry_at: Duration::from_secs(at) };
        assert_eq!(step(&refused(10), Some(claim("old", 1))), write(true));
        let stays = ClaimStep::StayRefused { by: claim("old", 1), pause: Duration::from_secs(2) };
        assert_eq!(step(&refused(12), Some(claim("old", 1))), stays);
        assert_eq!(step(&refused(12), None), write(false));
    }

    #[test]
    fn a_restored_claim_of_an_earlier_boot_is_replaced_once() {
        let holding = |challenged_at| ClaimState::Holding {
            claim: claim("new", 9),
            acts_at: Duration::ZERO,
            challenged_at,
        };
        let step = |state: &ClaimState, seconds| {
            let found = Some(claim("old", 1));
            claim_step(claim("new", 20), state, found, Duration::from_secs(seconds))
        };
        let challenge = ClaimStep::Challenge { claim: claim("new", 9) };
        assert_eq!(step(&holding(None), 10), challenge);
        let challenged = holding(Some(Duration::from_secs(10)));
        assert_eq!(step(&challenged, 12), ClaimStep::Yield(claim("old", 1)));
        // Long after that it is another restore.
        assert_eq!(step(&challenged, 310), challenge);
    }

    /// A daemon, and what it has done.
    struct Machine {
        boot: &'static str,
        state: ClaimState,
    }

    impl Machine {
        fn act(&mut self, node: &mut Option<IdentityClaim>, time: u64, skew: u64) {
            let own = claim(self.boot, time + skew);
            let now = Duration::from_secs(time);
            match claim_step(own, &self.state, node.clone(), now) {
                ClaimStep::Keep { claim, .. } => {
                    let challenged_at = self.state.challenged_at();
                    self.state = ClaimState::Holding { claim, acts_at: now, challenged_at };
                }
                ClaimStep::Write { claim, .. } | ClaimStep::Object { claim, .. } => {
                    *node = Some(claim.clone());
                    let challenged_at = self.state.challenged_at();
                    self.state = ClaimState::Holding { claim, acts_at: now, challenged_at };
                }
                ClaimStep::Challenge { claim } => {
                    *node = Some(claim.clone());
                    let challenged_at = Some(now);
                    self.state = ClaimState::Holding { claim, acts_at: now, challenged_at };
                }
                ClaimStep::Yield(by) => {
                    let retry_at = now + REFUSED_RETRY_INTERVAL;
                    self.state = ClaimState::Refused { by, retry_at };
                }
                ClaimStep::StayRefused { .. } => {}
            }
        }
    }

    proptest! {
        /// Whatever the order in which two machines see the Node, and whatever their clocks say, in the end one acts and
        /// the other is refused.
        #[test]
        fn of_two_machines_one_is_refused(
            order in proptest::collection::vec(any::<bool>(), 0..20), skew in 0u64..100,
        ) {
            let mut machines = ["a", "b"].map(|boot| Machine { boot, state: ClaimState::Unclaimed });
            let mut node = None;
            let settled = [false, true].repeat(6);
            for (time, second) in (0..).zip(order.into_iter().chain(settled)) {
                machines[usize::from(second)].act(&mut node, time, if second { skew } else { 0 });
            }
            let holds = machines.iter().filter(|it| matches!(it.state, ClaimState::Holding { .. })).count();
            prop_assert_eq!(holds, 1, "{:?}", machines.map(|machine| machine.state));
        }
    }
}
