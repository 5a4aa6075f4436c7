//! What happens to a difference: it is reported, or put right.

use std::fmt;
use std::str::FromStr;

use crate::api::names::annotation::machinist::DRIFT;

/// What happens to a difference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// The machine says that it is degraded, and waits: what the real daemon does.
    #[default]
    Report,
    /// The machine says so too, and puts the difference right.
    Heal,
}

/// A policy that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {DRIFT}: {value:?} is no policy for drift: write report or heal, or remove it")]
pub struct PolicyError {
    /// What was written.
    pub value: String,
}

impl Policy {
    /// What the annotation of a Node says, or else what the daemon was started with.
    pub fn of(annotation: Option<&str>, otherwise: Self) -> Result<Self, PolicyError> {
        annotation.map_or(Ok(otherwise), str::parse)
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        match text {
            "report" => Ok(Self::Report),
            "heal" => Ok(Self::Heal),
            other => Err(PolicyError { value: other.to_owned() }),
        }
    }
}

impl fmt::Display for Policy {
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
        assert_eq!(Policy::of(None, Policy::Heal), Ok(Policy::Heal));
        assert_eq!(Policy::of(Some("report"), Policy::Heal), Ok(Policy::Report));
        let error = Policy::of(Some("Heal"), Policy::Report).unwrap_err().to_string();
        assert!(error.contains("machinist.dev/drift") && error.contains("report or heal"));
    }
}
