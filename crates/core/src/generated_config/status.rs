//! The conditions of settings objects, newest last.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::condition::settings::{FAILURE, SUCCESS};
use crate::api::{Condition, Nullable};

use super::GenerateError;

/// Older conditions are dropped, as in MCO.
const MAX_CONDITIONS: usize = 10;

/// The conditions after an attempt. Unchanged if the last one already has this result.
#[must_use]
pub fn conditions(
    before: &[Condition],
    outcome: Result<(), &GenerateError>,
    now: &Time,
) -> Vec<Condition> {
    let (type_, message) = match outcome {
        Ok(()) => (SUCCESS, "Success".to_owned()),
        Err(error) => (FAILURE, format!("Error: {error}")),
    };
    let mut conditions = before.to_vec();
    let says_it = |last: &Condition| {
        last.type_ == type_ && last.message.as_deref() == Some(&message) && last.is_true()
    };
    if conditions.last().is_some_and(says_it) {
        return conditions;
    }
    conditions.push(Condition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        message: Some(message),
        last_transition_time: Nullable::Set(now.clone()),
        ..Condition::default()
    });
    let extra = conditions.len().saturating_sub(MAX_CONDITIONS);
    conditions.split_off(extra)
}

#[cfg(test)]
mod tests {
    use super::super::SourceRef;
    use super::*;

    #[test]
    fn the_last_condition_holds_the_result_and_the_list_is_bounded() {
        let now: Time = serde_json::from_str("\"2026-11-15T00:00:00Z\"").unwrap();
        let later: Time = serde_json::from_str("\"2026-11-16T00:00:00Z\"").unwrap();
        let good = conditions(&[], Ok(()), &now);
        assert_eq!((good.len(), good[0].type_.as_str()), (1, "Success"));
        assert_eq!(conditions(&good, Ok(()), &later), good);
        let mut all = good;
        for number in 0..20 {
            let error = GenerateError {
                object: SourceRef::new("ContainerRuntimeConfig", "a"),
                field: "spec.x".to_owned(),
                message: format!("wrong {number}"),
                remedy: "fix it".to_owned(),
            };
            all = conditions(&all, Err(&error), &later);
        }
        assert_eq!(all.len(), MAX_CONDITIONS);
        let last = all.last().unwrap().message.as_deref();
        assert_eq!(last, Some("Error: ContainerRuntimeConfig a: spec.x: wrong 19 (fix it)"));
    }
}
