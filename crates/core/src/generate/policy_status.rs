//! The status of image policies that are not, or not entirely, in effect. Written by the controller's generate loop.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::condition::settings::PENDING;
use crate::api::{Condition, Nullable};

/// Why an image policy is not in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingReason {
    /// The reason of the condition.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
}

/// The conditions to write: none if the status already says this, an empty list if the policy is in effect again.
#[must_use]
pub fn pending_conditions(
    before: &[Condition],
    pending: Option<PendingReason>,
    generation: Option<i64>,
    now: &Time,
) -> Option<Vec<Condition>> {
    let known = before.iter().find(|condition| condition.type_ == PENDING);
    let Some(PendingReason { reason, message }) = pending else {
        return known.map(|_| Vec::new());
    };
    let says_this = |condition: &Condition| {
        condition.message.as_deref() == Some(&message)
            && condition.reason.as_deref() == Some(reason)
            && condition.observed_generation == generation
    };
    if known.is_some_and(says_this) {
        return None;
    }
    Some(vec![Condition {
        type_: PENDING.to_owned(),
        status: "False".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        observed_generation: generation,
        last_transition_time: Nullable::Set(now.clone()),
        ..Condition::default()
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_written_only_if_it_says_something_new() {
        let now = Time("2026-01-01T00:00:00Z".parse().unwrap());
        let pending = |reason: &'static str, message: &str| {
            Some(PendingReason { reason, message: message.to_owned() })
        };
        let written = |before: &[Condition], said, generation| {
            pending_conditions(before, said, Some(generation), &now)
        };
        let first = written(&[], pending("InvalidPolicy", "x"), 1).unwrap();
        assert_eq!((first.len(), first[0].status.as_str()), (1, "False"));
        for (said, generation, expected) in [
            (pending("InvalidPolicy", "x"), 1, None),
            (pending("InvalidPolicy", "y"), 1, Some(1)),
            (pending("ConflictScopes", "x"), 1, Some(1)),
            (pending("InvalidPolicy", "x"), 2, Some(1)),
            (None, 1, Some(0)),
        ] {
            let found =
                written(&first, said.clone(), generation).map(|conditions| conditions.len());
            assert_eq!(found, expected, "{said:?} {generation}");
        }
        assert_eq!(written(&[], None, 1), None, "a policy in effect needs no status");
    }
}
