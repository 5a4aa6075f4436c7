//! What happens to a difference: it is reported, or put right.

use std::fmt;
use std::str::FromStr;

use crate::api::names::annotation::machinist::DRIFT;

/// What happens to a difference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DriftPolicy {
    /// The machine says that it is degraded, and waits: what the real daemon does.
    #[default]
    Report,
    /// The machine says so too, and puts the difference right.
    Heal,
}

/// A policy that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {DRIFT}: {value:?} is no policy for drift: write report or heal, or remove it")]
pub struct DriftPolicyError {
    /// What was written.
    pub value: String,
}

impl DriftPolicy {
    /// What the annotation of a Node says, or else what the daemon was started with.
    pub fn from_annotation(
        annotation: Option<&str>,
        otherwise: Self,
    ) -> Result<Self, DriftPolicyError> {
        annotation.map_or(Ok(otherwise), str::parse)
    }
}

impl FromStr for DriftPolicy {
    type Err = DriftPolicyError;

    fn from_str(text: &str) -> Result<Self, DriftPolicyError> {
        match text {
            "report" => Ok(Self::Report),
            "heal" => Ok(Self::Heal),
            other => Err(DriftPolicyError { value: other.to_owned() }),
        }
    }
}

impl fmt::Display for DriftPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Report => "report",
            Self::Heal => "heal",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_wins_and_a_wrong_one_is_said() {
        assert_eq!(DriftPolicy::from_annotation(None, DriftPolicy::Heal), Ok(DriftPolicy::Heal));
        assert_eq!(
            DriftPolicy::from_annotation(Some("report"), DriftPolicy::Heal),
            Ok(DriftPolicy::Report)
        );
        let error = DriftPolicy::from_annotation(Some("Heal"), DriftPolicy::Report)
            .unwrap_err()
            .to_string();
        assert!(error.contains("machinist.dev/drift") && error.contains("report or heal"));
    }
}
