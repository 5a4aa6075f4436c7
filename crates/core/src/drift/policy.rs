//! What happens to drift: it is reported, or healed.

use std::fmt;
use std::str::FromStr;

use crate::api::names::annotation::machinist::DRIFT;

/// What happens to drift.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DriftPolicy {
    /// The machine reports that it is degraded, and waits, as in MCO.
    #[default]
    Report,
    /// The machine reports it and heals it.
    Heal,
}

/// The annotation is not a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "annotation {DRIFT}: {value:?} is not a drift policy: write report or heal, or remove the annotation"
)]
pub struct DriftPolicyError {
    /// The value.
    pub value: String,
}

impl DriftPolicy {
    /// The policy in the annotation of the Node, or the one that the daemon was started with.
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
    fn the_annotation_wins_and_an_invalid_one_is_an_error() {
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
