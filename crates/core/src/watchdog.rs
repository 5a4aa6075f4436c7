//! Whether the daemon of a machine can run, and what its watchdog restores. The shell observes the service and performs
//! the actions: `machinist daemon status` and `machinist daemon watchdog`.

use std::fmt;

/// A daemon that systemd has started this often without a longer run in between is in a crash loop.
pub const CRASH_LOOP_RESTARTS: u32 = 5;

/// What is at the path of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitFileState {
    /// Nothing.
    Missing,
    /// An empty file, which systemd treats as a mask.
    Empty,
    /// A link to `/dev/null`.
    Masked,
    /// A file that systemd cannot load.
    Invalid,
    /// A file.
    Present,
}

/// What is at the path of the binary that the unit runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryFile {
    /// No executable file.
    Missing,
    /// An executable file.
    Present,
}

/// The daemon's service on a machine that has joined, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedService {
    /// Whether the machine has an identity.
    pub has_identity: bool,
    /// Whether the certificate of the identity has expired.
    pub has_expired: bool,
    /// The unit.
    pub unit: UnitFileState,
    /// Whether the service starts with the machine.
    pub is_enabled: bool,
    /// The binary.
    pub binary: BinaryFile,
    /// systemd's word for the state of the service; `None` where systemd does not run.
    pub active_state: Option<String>,
    /// How often systemd has restarted the service by itself.
    pub restarts: u32,
}

/// Why the daemon cannot run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceProblem {
    /// The machine has no identity.
    NoIdentity,
    /// The unit is not as it should be.
    Unit(UnitFileState),
    /// The binary is missing.
    NoBinary,
    /// The service does not start with the machine.
    Disabled,
    /// The service failed and systemd does not start it again.
    Failed,
    /// The service ends shortly after each start.
    CrashLoop,
    /// The API server does not accept the certificate any more. The machine was off for too long.
    ExpiredIdentity,
    /// The daemon is a new one, and has not come up in its time.
    UpgradeOverdue,
}

impl ServiceProblem {
    /// What is wrong.
    #[must_use]
    pub fn cause(self) -> &'static str {
        match self {
            Self::NoIdentity => "the identity of this machine is missing or damaged",
            Self::Unit(UnitFileState::Empty) => "its unit is empty",
            Self::Unit(UnitFileState::Masked) => "its unit is masked",
            Self::Unit(UnitFileState::Invalid) => "systemd cannot load its unit",
            Self::Unit(_) => "its unit is missing",
            Self::NoBinary => "its binary is missing",
            Self::Disabled => "it does not start on the next boot",
            Self::Failed => "it failed",
            Self::CrashLoop => "it ends shortly after each start",
            Self::ExpiredIdentity => "the certificate of this machine has expired",
            Self::UpgradeOverdue => "the new binary has not reached the API server in its time",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::NoIdentity | Self::ExpiredIdentity => {
                "run machinist join again, with a token of machinist hub token --role bootstrap --replace NAME"
            }
            Self::Unit(_) | Self::Disabled => {
                "run machinist join again with the same server and name, which repairs it"
            }
            Self::NoBinary => "install machinist again",
            Self::Failed => {
                "see journalctl -u machinist-daemon, then run systemctl restart machinist-daemon"
            }
            Self::CrashLoop | Self::UpgradeOverdue => "see journalctl -u machinist-daemon",
        }
    }
}

impl fmt::Display for ServiceProblem {
    /// What is wrong, and the remedy.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.cause(), self.remedy())
    }
}

impl ObservedService {
    /// Why the daemon cannot run, if it cannot.
    #[must_use]
    pub fn problem(&self) -> Option<ServiceProblem> {
        if self.unit != UnitFileState::Present {
            Some(ServiceProblem::Unit(self.unit))
        } else if !self.has_identity {
            Some(ServiceProblem::NoIdentity)
        } else if self.binary == BinaryFile::Missing {
            Some(ServiceProblem::NoBinary)
        } else if self.is_crash_looping() {
            let has_failed = self.active_state.as_deref() == Some("failed");
            Some(if has_failed { ServiceProblem::Failed } else { ServiceProblem::CrashLoop })
        } else if !self.is_enabled {
            Some(ServiceProblem::Disabled)
        } else if self.has_expired {
            Some(ServiceProblem::ExpiredIdentity)
        } else {
            None
        }
    }

    /// Whether the service has failed, or fails again and again.
    #[must_use]
    pub fn is_crash_looping(&self) -> bool {
        match self.active_state.as_deref() {
            Some("failed") => true,
            // Stopped by an administrator.
            Some("active" | "reloading" | "inactive" | "deactivating") | None => false,
            Some(_) => self.restarts >= CRASH_LOOP_RESTARTS,
        }
    }
}

/// After a crash loop, the last good files are put back this often. Then a person has to act.
pub const MAX_RECOVERIES: u32 = 3;

/// How the last daemon that worked differs from the installed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LastGood {
    /// Whether the installed binary is another one.
    pub binary_differs: bool,
    /// Whether the unit is another one.
    pub unit_differs: bool,
    /// Whether the unit is that of a package, which is still there beneath a mask.
    pub unit_is_packaged: bool,
    /// Whether the installed binary is that of an upgrade, and has not come up in its time.
    pub is_upgrade_overdue: bool,
}

/// What the watchdog does, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchdogAction {
    /// Removes the mask from the unit of a package.
    Unmask,
    /// Writes the last good unit.
    WriteUnit,
    /// Writes the last good binary.
    WriteBinary,
    /// Makes the service start with the machine.
    Enable,
    /// Makes systemd read the unit, clears the failures of the service and starts it.
    Start,
}

impl fmt::Display for WatchdogAction {
    /// What it has done, for people.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unmask => "removed the mask",
            Self::WriteUnit => "wrote its unit again",
            Self::WriteBinary => "wrote its binary again",
            Self::Enable => "enabled it",
            Self::Start => "started it",
        })
    }
}

/// What the watchdog does, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WatchdogDecision {
    /// What is wrong.
    pub problem: Option<ServiceProblem>,
    /// What to do about it.
    pub actions: Vec<WatchdogAction>,
    /// Whether it counts as a recovery from a crash loop.
    pub is_recovery: bool,
}

impl WatchdogDecision {
    /// What the watchdog has found and done, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let cause = self.problem.map_or("unknown", ServiceProblem::cause);
        let actions: Vec<String> = self.actions.iter().map(ToString::to_string).collect();
        format!("the daemon could not run ({cause}): {}", actions.join(", "))
    }
}

/// Decides what the watchdog does. `recoveries` counts those from crash loops since the daemon last worked.
///
/// A service that an administrator stopped is intact and inactive, and stays so.
#[must_use]
pub fn watchdog_decision(
    observed: &ObservedService,
    last_good: LastGood,
    recoveries: u32,
) -> WatchdogDecision {
    let is_stopped = observed.active_state.as_deref() == Some("inactive");
    let is_overdue = last_good.is_upgrade_overdue && last_good.binary_differs && !is_stopped;
    let problem = observed.problem().or(is_overdue.then_some(ServiceProblem::UpgradeOverdue));
    let mut decision = WatchdogDecision { problem, ..WatchdogDecision::default() };
    // Only `join` can restore an identity; while `leave` runs, there may be none.
    if problem.is_none() || !observed.has_identity {
        return decision;
    }
    let actions = &mut decision.actions;
    if observed.unit != UnitFileState::Present {
        actions.push(match last_good.unit_is_packaged && observed.unit != UnitFileState::Missing {
            true => WatchdogAction::Unmask,
            false => WatchdogAction::WriteUnit,
        });
    }
    if observed.binary == BinaryFile::Missing {
        actions.push(WatchdogAction::WriteBinary);
    }
    if problem == Some(ServiceProblem::UpgradeOverdue) {
        actions.push(WatchdogAction::WriteBinary);
    }
    if actions.is_empty() && observed.is_crash_looping() && recoveries < MAX_RECOVERIES {
        if last_good.unit_differs {
            actions.push(WatchdogAction::WriteUnit);
        }
        if last_good.binary_differs {
            actions.push(WatchdogAction::WriteBinary);
        }
        // The same daemon that worked before: systemd tries again by itself, unless it has given up.
        let has_given_up = problem == Some(ServiceProblem::Failed);
        decision.is_recovery = !actions.is_empty() || has_given_up;
    }
    if !observed.is_enabled {
        actions.push(WatchdogAction::Enable);
    }
    if !actions.is_empty() || decision.is_recovery {
        actions.push(WatchdogAction::Start);
    }
    decision
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_what_was_restored() {
        let decision = WatchdogDecision {
            problem: Some(ServiceProblem::Unit(UnitFileState::Masked)),
            actions: vec![WatchdogAction::Unmask, WatchdogAction::Start],
            is_recovery: false,
        };
        let text = "the daemon could not run (its unit is masked): removed the mask, started it";
        assert_eq!(decision.describe(), text);
    }

    fn healthy() -> ObservedService {
        ObservedService {
            has_identity: true,
            has_expired: false,
            unit: UnitFileState::Present,
            is_enabled: true,
            binary: BinaryFile::Present,
            active_state: Some("active".to_owned()),
            restarts: 0,
        }
    }

    fn in_state(state: &str, restarts: u32) -> ObservedService {
        ObservedService { active_state: Some(state.to_owned()), restarts, ..healthy() }
    }

    #[test]
    fn a_service_that_cannot_run_is_a_problem() {
        let unit = |unit| ObservedService { unit, ..healthy() };
        for (observed, expected) in [
            (healthy(), None),
            (ObservedService { active_state: None, ..healthy() }, None),
            (unit(UnitFileState::Missing), Some("its unit is missing: run machinist join")),
            (unit(UnitFileState::Empty), Some("its unit is empty: run machinist join")),
            (unit(UnitFileState::Masked), Some("its unit is masked: run machinist join")),
            (unit(UnitFileState::Invalid), Some("systemd cannot load its unit")),
            (ObservedService { has_identity: false, ..healthy() }, Some("--replace NAME")),
            (ObservedService { has_expired: true, ..healthy() }, Some("--replace NAME")),
            (ObservedService { binary: BinaryFile::Missing, ..healthy() }, Some("its binary")),
            (ObservedService { is_enabled: false, ..healthy() }, Some("on the next boot")),
            (in_state("failed", 0), Some("it failed")),
            (in_state("activating", 5), Some("shortly after each start")),
            (in_state("activating", 4), None),
            (in_state("active", 9), None),
            // An administrator stopped it.
            (in_state("inactive", 9), None),
        ] {
            let problem = observed.problem().map(|problem| problem.to_string());
            match expected {
                None => assert_eq!(problem, None, "{observed:?}"),
                Some(part) => {
                    assert!(problem.unwrap_or_default().contains(part), "{observed:?}");
                }
            }
        }
    }

    #[test]
    fn the_watchdog_restores_what_is_broken() {
        use WatchdogAction::{Enable, Start, Unmask, WriteBinary, WriteUnit};
        let unit = |unit| ObservedService { unit, ..healthy() };
        let no_binary = ObservedService { binary: BinaryFile::Missing, ..healthy() };
        let same = LastGood::default();
        let packaged = LastGood { unit_is_packaged: true, ..same };
        let other_binary = LastGood { binary_differs: true, ..same };
        let other_both = LastGood { unit_differs: true, ..other_binary };
        let overdue = LastGood { is_upgrade_overdue: true, ..other_binary };
        let returned = LastGood { is_upgrade_overdue: true, ..same };
        let cases: [(ObservedService, LastGood, u32, &[WatchdogAction]); 24] = [
            // A new binary that runs, and does not reach the API server.
            (healthy(), overdue, 0, &[WriteBinary, Start]),
            (in_state("activating", 1), overdue, 9, &[WriteBinary, Start]),
            (in_state("activating", 5), overdue, 0, &[WriteBinary, Start]),
            (healthy(), returned, 0, &[]),
            (in_state("inactive", 0), overdue, 0, &[]),
            (ObservedService { has_expired: true, ..healthy() }, same, 0, &[]),
            (healthy(), other_both, 0, &[]),
            (unit(UnitFileState::Missing), same, 0, &[WriteUnit, Start]),
            (unit(UnitFileState::Missing), packaged, 0, &[WriteUnit, Start]),
            (unit(UnitFileState::Empty), same, 0, &[WriteUnit, Start]),
            (unit(UnitFileState::Masked), same, 9, &[WriteUnit, Start]),
            (unit(UnitFileState::Masked), packaged, 0, &[Unmask, Start]),
            (unit(UnitFileState::Invalid), same, 0, &[WriteUnit, Start]),
            (no_binary.clone(), same, 0, &[WriteBinary, Start]),
            (
                ObservedService {
                    unit: UnitFileState::Masked,
                    is_enabled: false,
                    ..no_binary.clone()
                },
                same,
                0,
                &[WriteUnit, WriteBinary, Enable, Start],
            ),
            (ObservedService { is_enabled: false, ..healthy() }, same, 0, &[Enable, Start]),
            // Only join can repair these.
            (ObservedService { has_identity: false, ..no_binary }, same, 0, &[]),
            // An administrator stopped it.
            (in_state("inactive", 9), other_both, 0, &[]),
            // Crash loops.
            (in_state("activating", 4), other_both, 0, &[]),
            (in_state("activating", 5), other_binary, 0, &[WriteBinary, Start]),
            (in_state("activating", 5), other_both, 2, &[WriteUnit, WriteBinary, Start]),
            (in_state("activating", 99), same, 0, &[]),
            (in_state("failed", 0), same, 0, &[Start]),
            (in_state("failed", 0), other_both, MAX_RECOVERIES, &[]),
        ];
        for (observed, last_good, recoveries, expected) in cases {
            let decision = watchdog_decision(&observed, last_good, recoveries);
            assert_eq!(decision.actions, expected, "{observed:?} {last_good:?} {recoveries}");
            assert!(decision.actions.is_sorted(), "{decision:?}");
            let is_loop = observed.unit == UnitFileState::Present
                && observed.binary == BinaryFile::Present
                && observed.is_enabled
                && decision.problem != Some(ServiceProblem::UpgradeOverdue);
            assert_eq!(decision.is_recovery, is_loop && !expected.is_empty(), "{observed:?}");
        }
    }
}
