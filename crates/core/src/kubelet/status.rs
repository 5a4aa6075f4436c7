//! The status of a KubeletConfig.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::condition::settings::{self, WARNING};
use crate::api::{Condition, KubeletConfigStatus, Nullable};

/// The condition type for the result.
const ACCEPTED: &str = "Accepted";
/// Older results are dropped.
const MAX_CONDITIONS: usize = 3;

/// The status after an attempt: its result and the warnings. If nothing changed, the old status is
/// returned with its timestamps.
#[must_use]
pub fn status(
    old: Option<&KubeletConfigStatus>,
    generation: Option<i64>,
    outcome: Result<(), &str>,
    warnings: &[String],
    now: &Time,
) -> KubeletConfigStatus {
    let message = outcome.map_or_else(|message| format!("Error: {message}"), |()| "Success".into());
    let mut new = old.cloned().unwrap_or_default();
    let conditions = new.conditions.get_or_insert_default();
    let is_legacy = |it: &Condition| it.type_ == settings::SUCCESS || it.type_ == settings::FAILURE;
    let had_legacy = conditions.last().is_some_and(is_legacy);
    let warned = conditions.iter().find(|condition| condition.type_ == WARNING).cloned();
    conditions.retain(|condition| !is_legacy(condition) && condition.type_ != WARNING);
    let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
    let is_same_warning = warned.and_then(|condition| condition.message) == warning;
    let is_same = conditions.last().is_some_and(|last| last.message.as_ref() == Some(&message));
    if let Some(old) = old
        && is_same
        && had_legacy
        && is_same_warning
        && old.observed_generation == generation
    {
        return old.clone();
    }
    let condition = |type_: &str, holds: bool| Condition {
        type_: type_.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        last_transition_time: Nullable::Set(now.clone()),
        message: Some(message.clone()),
        ..Condition::default()
    };
    match conditions.last_mut().filter(|_| is_same) {
        Some(last) => last.last_transition_time = Nullable::Set(now.clone()),
        None => conditions.push(condition(ACCEPTED, outcome.is_ok())),
    }
    let too_many = conditions.len().saturating_sub(MAX_CONDITIONS);
    conditions.drain(..too_many);
    if let Some(warning) = warning {
        let mut condition = condition(WARNING, true);
        condition.message = Some(warning);
        conditions.push(condition);
    }
    // Older clients read this condition.
    conditions.push(match outcome {
        Ok(()) => condition(settings::SUCCESS, true),
        Err(_) => condition(settings::FAILURE, true),
    });
    new.observed_generation = generation;
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        Time(text.parse().unwrap())
    }

    fn shown(status: &KubeletConfigStatus) -> Vec<String> {
        let all = status.conditions.iter().flatten();
        all.map(|it| format!("{} {} {}", it.type_, it.status, it.message.as_deref().unwrap()))
            .collect()
    }

    #[test]
    fn the_last_three_conditions_are_kept_and_one_for_older_clients() {
        let now = time("2026-01-01T00:00:00Z");
        let mut current: Option<KubeletConfigStatus> = None;
        for (generation, outcome) in
            [(1, Err("a")), (2, Err("b")), (3, Ok(())), (4, Err("c")), (5, Err("c"))]
        {
            current = Some(status(current.as_ref(), Some(generation), outcome, &[], &now));
        }
        let current = current.unwrap();
        assert_eq!(current.observed_generation, Some(5));
        assert_eq!(
            shown(&current),
            [
                "Accepted False Error: b",
                "Accepted True Success",
                "Accepted False Error: c",
                "Failure True Error: c"
            ]
        );
    }

    #[test]
    fn an_unchanged_result_keeps_the_status() {
        let first = status(None, Some(1), Ok(()), &[], &time("2026-01-01T00:00:00Z"));
        assert_eq!(shown(&first), ["Accepted True Success", "Success True Success"]);
        let later = time("2026-01-02T00:00:00Z");
        assert_eq!(status(Some(&first), Some(1), Ok(()), &[], &later), first);
        let changed = status(Some(&first), Some(2), Ok(()), &[], &later);
        assert_ne!(changed, first);
        assert_eq!(shown(&changed), shown(&first));
    }

    #[test]
    fn warnings_are_reported_and_cleared() {
        let now = time("2026-01-01T00:00:00Z");
        let odd = ["no kubelet knows this".to_owned()];
        let first = status(None, Some(1), Ok(()), &odd, &now);
        assert_eq!(
            shown(&first),
            ["Accepted True Success", "Warning True no kubelet knows this", "Success True Success"]
        );
        let later = time("2026-01-02T00:00:00Z");
        assert_eq!(status(Some(&first), Some(1), Ok(()), &odd, &later), first);
        let mended = status(Some(&first), Some(2), Ok(()), &[], &later);
        assert_eq!(shown(&mended), ["Accepted True Success", "Success True Success"]);
    }
}
