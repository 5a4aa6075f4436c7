//! The canaries: the machines that get a config first and have to stay healthy for the soak time.
//!
//! No list of canaries is stored. Until they finish, no other machine has the new config, so every
//! machine that has it is a canary.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::MachineConfigPool;
use crate::api::names::annotation::machinist;
use crate::node::{NodeView, RolloutTarget};

use super::{RolloutPolicy, annotation_of};

/// The state of the canaries.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CanaryState {
    /// Finished, or the policy has none.
    Passed,
    /// `remaining` more machines may get the config; the `unfinished` ones are still applying it.
    InProgress { remaining: usize, unfinished: Vec<String> },
    /// They are healthy and have to stay so until this time.
    Soaking { until: Time },
}

/// The state of the canaries, and the new value of the pool's annotation
/// [`CANARY_STATE`](machinist::CANARY_STATE): `None` to leave it, `Some(None)` to remove it.
pub(super) fn evaluate_canary(
    pool: &MachineConfigPool,
    policy: &RolloutPolicy,
    views: &[NodeView<'_>],
    goal: RolloutTarget<'_>,
    now: &Time,
) -> (CanaryState, Option<Option<String>>) {
    let target = goal.config;
    let everybody_had_it = pool
        .status
        .as_ref()
        .and_then(|status| status.configuration.as_ref()?.name.as_deref())
        .is_some_and(|name| name == target);
    let nobody_waits = !views.iter().any(|view| view.needs_target(goal));
    let state = annotation_of(pool, machinist::CANARY_STATE).unwrap_or_default();
    let known = state.strip_prefix(target).and_then(|rest| rest.strip_prefix(' '));
    if policy.canary == 0
        || target.is_empty()
        || everybody_had_it
        || nobody_waits
        || known == Some("passed")
    {
        return (CanaryState::Passed, None);
    }
    let first: Vec<&NodeView<'_>> = views.iter().filter(|view| !view.needs_target(goal)).collect();
    let is_healthy = |view: &NodeView<'_>| view.is_updated_to(goal) && view.not_ready().is_none();
    let unfinished: Vec<String> =
        first.iter().filter(|view| !is_healthy(view)).map(|view| view.name().to_owned()).collect();
    let remaining = policy.canary.saturating_sub(first.len());
    if remaining > 0 || !unfinished.is_empty() {
        // The soak time starts over when a canary becomes unhealthy.
        let remove = (!state.is_empty()).then_some(None);
        return (CanaryState::InProgress { remaining, unfinished }, remove);
    }
    let since = known.and_then(|state| state.strip_prefix("soaking "));
    // An invalid or future start time does not count.
    let since = since.and_then(|text| text.parse().ok()).map(Time).filter(|since| since <= now);
    let (since, is_new) = since.map_or((now.clone(), true), |since| (since, false));
    let until = since.0.checked_add(policy.soak).map_or_else(|_| since.clone(), Time);
    if until <= *now {
        (CanaryState::Passed, Some(Some(format!("{target} passed"))))
    } else {
        let new_value = is_new.then(|| Some(format!("{target} soaking {}", since.0)));
        (CanaryState::Soaking { until }, new_value)
    }
}
