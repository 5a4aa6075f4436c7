//! What happens to a path that drifts as often as it is healed, and how it is described.

use std::fmt;
use std::str::FromStr;

use super::HealConflict;
use crate::api::names::annotation::machinist::DRIFT_CONFLICT;

/// Units that are never stopped: without them the machine does not run, or nobody can reach it.
const PROTECTED_UNITS: [&str; 12] = [
    "machinist-",
    "machine-config-daemon",
    "systemd-",
    "dbus",
    "kubelet",
    "crio",
    "containerd",
    "sshd",
    "ssh.",
    "NetworkManager",
    "rpm-ostreed",
    "user@",
];

/// What happens to a path that drifts as often as it is healed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DriftConflictPolicy {
    /// It is reported as an event. The machine is degraded only while the path differs.
    Report,
    /// The systemd unit that changes the path is stopped, once. Degrades if that does not help.
    StopUnit,
    /// The machine is degraded until the path stays healed.
    #[default]
    Degrade,
}

/// The annotation is not a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "annotation {DRIFT_CONFLICT}: {value:?} is not a policy for drift conflicts: write report, stop-unit or degrade, or remove the annotation"
)]
pub struct DriftConflictPolicyError {
    /// The value.
    pub value: String,
}

impl DriftConflictPolicy {
    /// The policy in the annotation of the Node, or the default.
    pub fn from_annotation(annotation: Option<&str>) -> Result<Self, DriftConflictPolicyError> {
        annotation.map_or(Ok(Self::default()), str::parse)
    }
}

impl FromStr for DriftConflictPolicy {
    type Err = DriftConflictPolicyError;

    fn from_str(text: &str) -> Result<Self, DriftConflictPolicyError> {
        match text {
            "report" => Ok(Self::Report),
            "stop-unit" => Ok(Self::StopUnit),
            "degrade" => Ok(Self::Degrade),
            other => Err(DriftConflictPolicyError { value: other.to_owned() }),
        }
    }
}

/// What the policy asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConflictStep {
    /// Report it.
    Report,
    /// Stop this unit.
    StopUnit(String),
    /// Keep the machine degraded.
    Degrade,
}

impl HealConflict {
    /// What the policy asks for.
    #[must_use]
    pub fn next_step(&self, policy: DriftConflictPolicy) -> ConflictStep {
        match (policy, &self.writer.unit) {
            (DriftConflictPolicy::Report, _) => ConflictStep::Report,
            (DriftConflictPolicy::StopUnit, Some(unit))
                if self.stopped_unit.is_none() && may_stop(unit) =>
            {
                ConflictStep::StopUnit(unit.clone())
            }
            _ => ConflictStep::Degrade,
        }
    }
}

/// Whether a unit may be stopped. Only services: a scope is the session of a person.
fn may_stop(unit: &str) -> bool {
    unit.ends_with(".service") && !PROTECTED_UNITS.iter().any(|own| unit.starts_with(own))
}

impl fmt::Display for HealConflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, heals, within, writer, stopped_unit, .. } = self;
        let process = writer.process.as_deref().unwrap_or("an unknown process");
        let within = within.as_secs();
        write!(
            formatter,
            "{path:?} was healed {heals} times in {within} s, and is repeatedly changed by {process}"
        )?;
        match (&writer.unit, &writer.suspect) {
            (Some(unit), _) => write!(formatter, " of unit {unit}")?,
            (None, Some(unit)) => write!(formatter, "; the command line of unit {unit} names it")?,
            (None, None) => {}
        }
        if let Some(unit) = stopped_unit {
            write!(formatter, "; stopping {unit} did not help")?;
        }
        match writer.unit.as_ref().or(writer.suspect.as_ref()) {
            Some(unit) => write!(
                formatter,
                ": run systemctl disable --now {unit}, or remove the path from the config"
            ),
            None => {
                formatter.write_str(": stop what changes it, or remove the path from the config")
            }
        }
    }
}

/// All conflicts in one line.
#[must_use]
pub fn describe_conflicts(conflicts: &[HealConflict]) -> Option<String> {
    let all: Vec<String> =
        conflicts.iter().take(super::MAX_NAMED_PATHS).map(ToString::to_string).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drift::PathWriter;
    use std::time::Duration;

    fn conflict(unit: Option<&str>, stopped: Option<&str>) -> HealConflict {
        let process = Some("sh (pid 7, user 0)".to_owned());
        HealConflict {
            path: "/etc/one".to_owned(),
            heals: 5,
            within: Duration::from_secs(15),
            writer: PathWriter { process, unit: unit.map(str::to_owned), suspect: None },
            stopped_unit: stopped.map(str::to_owned),
            is_reported: false,
        }
    }

    #[test]
    fn the_policy_decides_and_protected_units_are_not_stopped() {
        use DriftConflictPolicy::{Degrade, Report, StopUnit};
        let stop = |unit: &str| ConflictStep::StopUnit(unit.to_owned());
        for (policy, unit, stopped, expected) in [
            (Report, Some("a.service"), None, ConflictStep::Report),
            (Degrade, Some("a.service"), None, ConflictStep::Degrade),
            (StopUnit, Some("a.service"), None, stop("a.service")),
            (StopUnit, Some("a.service"), Some("a.service"), ConflictStep::Degrade),
            (StopUnit, None, None, ConflictStep::Degrade),
            (StopUnit, Some("session-3.scope"), None, ConflictStep::Degrade),
            (StopUnit, Some("machinist-daemon.service"), None, ConflictStep::Degrade),
            (StopUnit, Some("kubelet.service"), None, ConflictStep::Degrade),
            (StopUnit, Some("sshd@1.service"), None, ConflictStep::Degrade),
        ] {
            assert_eq!(conflict(unit, stopped).next_step(policy), expected, "{policy:?} {unit:?}");
        }
    }

    #[test]
    fn an_invalid_policy_is_an_error_that_names_the_values() {
        let parse = DriftConflictPolicy::from_annotation;
        assert_eq!(parse(None), Ok(DriftConflictPolicy::Degrade));
        assert_eq!(parse(Some("stop-unit")), Ok(DriftConflictPolicy::StopUnit));
        let error = parse(Some("stop")).unwrap_err().to_string();
        assert!(error.contains("machinist.dev/drift-conflict: \"stop\""), "{error}");
        assert!(error.contains("report, stop-unit or degrade"), "{error}");
    }

    #[test]
    fn a_conflict_names_path_count_writer_and_remedy() {
        let mut found = conflict(Some("a.service"), None);
        assert_eq!(
            found.to_string(),
            "\"/etc/one\" was healed 5 times in 15 s, and is repeatedly changed by sh (pid 7, user 0) of unit a.service: run systemctl disable --now a.service, or remove the path from the config"
        );
        found.writer = PathWriter::default();
        assert_eq!(
            found.to_string(),
            "\"/etc/one\" was healed 5 times in 15 s, and is repeatedly changed by an unknown process: stop what changes it, or remove the path from the config"
        );
        found.writer.suspect = Some("b.service".to_owned());
        found.stopped_unit = Some("a.service".to_owned());
        let text = found.to_string();
        assert!(text.contains("the command line of unit b.service names it"), "{text}");
        assert!(text.contains("stopping a.service did not help"), "{text}");
    }
}
