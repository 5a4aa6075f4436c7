//! Whether a machine is healthy, from one round of checks.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::HealthSpec;

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthCheck {
    /// A unit is active.
    Unit {
        /// The unit.
        unit: String,
    },
    /// A command exits with 0.
    Command {
        /// The command and its arguments.
        run: Vec<String>,
        /// Its timeout.
        timeout: Duration,
    },
    /// The API server can be reached.
    Api,
}

impl fmt::Display for HealthCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit { unit } => write!(formatter, "unit {unit}"),
            Self::Command { run, .. } => write!(formatter, "command {}", run.join(" ")),
            Self::Api => formatter.write_str("API"),
        }
    }
}

/// The results of one round: for each check, in order, nothing or what is wrong.
pub type HealthResults = Vec<Result<(), String>>;

/// A check that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCheck {
    /// The check, for people.
    pub check: String,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for FailedCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.check, self.problem)
    }
}

/// Whether a machine is healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthState {
    /// All checks have passed for long enough.
    Healthy,
    /// All checks pass, but not for long enough yet.
    Settling {
        /// How long they still have to pass.
        left: Duration,
    },
    /// A check fails, and there is time left.
    NotYet {
        /// The first check that fails.
        failing: FailedCheck,
        /// How much time is left.
        left: Duration,
    },
    /// A check fails, and the time is up.
    Failed {
        /// The first check that fails.
        failing: FailedCheck,
    },
}

/// When a round of checks ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthTiming {
    /// How long the machine has been checked.
    pub elapsed: Duration,
    /// How long all checks have passed before this round.
    pub healthy_for: Duration,
}

/// Evaluates a round of checks.
#[must_use]
pub fn evaluate(
    spec: &HealthSpec,
    round: &[Result<(), String>],
    clock: HealthTiming,
) -> HealthState {
    let some = |left: Option<Duration>| left.filter(|left| !left.is_zero());
    let Some(failing) = first_failed(spec, round) else {
        // A machine that becomes healthy in time may finish its settling time.
        return match some(spec.stable.checked_sub(clock.healthy_for)) {
            Some(left) => HealthState::Settling { left },
            None => HealthState::Healthy,
        };
    };
    match some(spec.deadline.checked_sub(clock.elapsed)) {
        Some(left) => HealthState::NotYet { failing, left },
        None => HealthState::Failed { failing },
    }
}

fn first_failed(spec: &HealthSpec, round: &[Result<(), String>]) -> Option<FailedCheck> {
    spec.checks().iter().enumerate().find_map(|(index, check)| {
        let problem = match round.get(index) {
            Some(Ok(())) => return None,
            Some(Err(problem)) => problem.clone(),
            None => "it was not checked".to_owned(),
        };
        Some(FailedCheck { check: check.to_string(), problem })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn spec() -> HealthSpec {
        HealthSpec {
            deadline: seconds(60),
            stable: seconds(10),
            units: vec!["a.service".to_owned(), "b.service".to_owned()],
            commands: Vec::new(),
            api: true,
        }
    }

    #[test]
    fn the_first_failing_check_is_reported() {
        let bad = |text: &str| Err(text.to_owned());
        let failing = |check: &str, problem: &str| FailedCheck {
            check: check.to_owned(),
            problem: problem.to_owned(),
        };
        let well = vec![Ok(()), Ok(()), Ok(())];
        for (round, elapsed, held, expected) in [
            (well.clone(), 11, 10, HealthState::Healthy),
            (well.clone(), 1, 0, HealthState::Settling { left: seconds(10) }),
            // Healthy at the last moment counts, if it lasts.
            (well.clone(), 63, 4, HealthState::Settling { left: seconds(6) }),
            (well, 99, 12, HealthState::Healthy),
            (
                vec![Ok(()), bad("is failed"), bad("no answer")],
                20,
                0,
                HealthState::NotYet {
                    failing: failing("unit b.service", "is failed"),
                    left: seconds(40),
                },
            ),
            (
                vec![Ok(()), Ok(()), bad("no answer")],
                60,
                9,
                HealthState::Failed { failing: failing("API", "no answer") },
            ),
            (
                vec![Ok(())],
                61,
                0,
                HealthState::Failed { failing: failing("unit b.service", "it was not checked") },
            ),
        ] {
            let clock = HealthTiming { elapsed: seconds(elapsed), healthy_for: seconds(held) };
            assert_eq!(evaluate(&spec(), &round, clock), expected);
        }
    }

    proptest! {
        /// Healthy means that all checks passed; failed means that one did not and the time was up.
        #[test]
        fn verdicts_follow_the_round_and_the_clock(
            holds in prop::collection::vec(any::<bool>(), 3), elapsed in 0..120_u64, held in 0..20_u64
        ) {
            let result = |holds: &bool| if *holds { Ok(()) } else { Err("x".to_owned()) };
            let round: HealthResults = holds.iter().map(result).collect();
            let all = holds.iter().all(|holds| *holds);
            let clock = HealthTiming { elapsed: seconds(elapsed), healthy_for: seconds(held) };
            match evaluate(&spec(), &round, clock) {
                HealthState::Healthy => prop_assert!(all && held >= 10),
                HealthState::Settling { left } => {
                    prop_assert!(all);
                    prop_assert_eq!(left, seconds(10 - held));
                }
                HealthState::NotYet { left, .. } => {
                    prop_assert!(!all);
                    prop_assert_eq!(left, seconds(60 - elapsed));
                }
                HealthState::Failed { .. } => prop_assert!(!all && elapsed >= 60),
            }
        }
    }
}
