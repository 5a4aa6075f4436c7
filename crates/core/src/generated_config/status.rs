//! The conditions of settings objects, newest last.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::condition::settings::{FAILURE, SUCCESS, WARNING};
use crate::api::{Condition, Nullable};

use super::GenerateError;

/// Older conditions are dropped, as in MCO.
const MAX_CONDITIONS: usize = 10;

/// The conditions after an attempt. Unchanged if the last one already has this result, and the one before it these
/// warnings.
#[must_use]
pub fn conditions(
    before: &[Condition],
    outcome: Result<(), &GenerateError>,
    warnings: &[String],
    now: &Time,
) -> Vec<Condition> {
    let is_warning = |condition: &&Condition| condition.type_ == WARNING;
    let results: Vec<Condition> = before.iter().filter(|it| !is_warning(it)).cloned().collect();
    let mut after = with_result(&results, outcome, now);
    if !warnings.is_empty() {
        let message = warnings.join("; ");
        let known =
            before.iter().find(|it| is_warning(it) && it.message.as_ref() == Some(&message));
        let warning = known.cloned().unwrap_or_else(|| condition(WARNING, message, now));
        after.insert(after.len().saturating_sub(1), warning);
    }
    after
}

fn with_result(
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
    conditions.push(condition(type_, message, now));
    let extra = conditions.len().saturating_sub(MAX_CONDITIONS);
    conditions.split_off(extra)
}

fn condition(type_: &str, message: String, now: &Time) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        message: Some(message),
        last_transition_time: Nullable::Set(now.clone()),
        ..Condition::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::SourceRef;
    use super::*;

    #[test]
    fn the_last_condition_holds_the_result_and_the_list_is_bounded() {
        let now: Time = serde_json::from_str("\"2026-11-15T00:00:00Z\"").unwrap();
        let later: Time = serde_json::from_str("\"2026-11-16T00:00:00Z\"").unwrap();
        let good = conditions(&[], Ok(()), &[], &now);
        assert_eq!((good.len(), good[0].type_.as_str()), (1, "Success"));
        assert_eq!(conditions(&good, Ok(()), &[], &later), good);
        let mut all = good;
        for number in 0..20 {
            let error = GenerateError {
                object: SourceRef::new("ContainerRuntimeConfig", "a"),
                field: "spec.x".to_owned(),
                message: format!("wrong {number}"),
                remedy: "fix it".to_owned(),
            };
            all = conditions(&all, Err(&error), &[], &later);
        }
        assert_eq!(all.len(), MAX_CONDITIONS);
        let last = all.last().unwrap().message.as_deref();
        assert_eq!(last, Some("Error: ContainerRuntimeConfig a: spec.x: wrong 19 (fix it)"));
    }

    #[test]
    fn warnings_come_before_the_result_and_go_with_their_cause() {
        let now: Time = serde_json::from_str("\"2026-11-15T00:00:00Z\"").unwrap();
        let later: Time = serde_json::from_str("\"2026-11-16T00:00:00Z\"").unwrap();
        let types = |all: &[Condition]| all.iter().map(|it| it.type_.clone()).collect::<Vec<_>>();
        let odd = ["x: no effect".to_owned(), "y: no effect".to_owned()];
        let warned = conditions(&[], Ok(()), &odd, &now);
        assert_eq!(types(&warned), ["Warning", "Success"]);
        assert_eq!(warned[0].message.as_deref(), Some("x: no effect; y: no effect"));
        assert_eq!(conditions(&warned, Ok(()), &odd, &later), warned);
        let fewer = conditions(&warned, Ok(()), &odd[..1], &later);
        assert_eq!(fewer[0].message.as_deref(), Some("x: no effect"));
        assert_eq!(fewer[1], warned[1], "the result is as old as before");
        assert_eq!(conditions(&fewer, Ok(()), &[], &later), conditions(&[], Ok(()), &[], &now));
    }
}
