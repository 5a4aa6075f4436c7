//! The machines that go before all others, and the time in which they have to prove themselves.
//!
//! They need no list: until they are through, nobody else has the new config. Who has it *is* one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::MachineConfigPool;
use crate::api::names::annotation::machinist;
use crate::node::{NodeView, RolloutTarget};

use super::{RolloutPolicy, annotation_of};

/// Where the first machines are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CanaryState {
    /// Through, or not asked for.
    Passed,
    /// So many more may get the config; these have it and are not through.
    InProgress { room: usize, unfinished: Vec<String> },
    /// They are well, and have to stay so until then.
    Soaking { until: Time },
}

/// Where the first machines are, and what the pool is to remember in
/// [`CANARY_STATE`](machinist::CANARY_STATE): None if nothing changes, `Some(None)` to forget.
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
    let memory = annotation_of(pool, machinist::CANARY_STATE).unwrap_or_default();
    let known = memory.strip_prefix(target).and_then(|rest| rest.strip_prefix(' '));
    if policy.canary == 0
        || target.is_empty()
        || everybody_had_it
        || nobody_waits
        || known == Some("passed")
    {
        return (CanaryState::Passed, None);
    }
    let first: Vec<&NodeView<'_>> = views.iter().filter(|view| !view.needs_target(goal)).collect();
    let well = |view: &NodeView<'_>| view.is_updated_to(goal) && view.not_ready().is_none();
    let unfinished: Vec<String> =
        first.iter().filter(|view| !well(view)).map(|view| view.name().to_owned()).collect();
    let room = policy.canary.saturating_sub(first.len());
    if room > 0 || !unfinished.is_empty() {
        // They have to be well without a break.
        let forget = (!memory.is_empty()).then_some(None);
        return (CanaryState::InProgress { room, unfinished }, forget);
    }
    let since = known.and_then(|state| state.strip_prefix("soaking "));
    // A time that is not one, or that has not come yet, is no proof.
    let since = since.and_then(|text| text.parse().ok()).map(Time).filter(|since| since <= now);
    let (since, is_new) = since.map_or((now.clone(), true), |since| (since, false));
    let until = since.0.checked_add(policy.soak).map_or_else(|_| since.clone(), Time);
    if until <= *now {
        (CanaryState::Passed, Some(Some(format!("{target} passed"))))
    } else {
        let remember = is_new.then(|| Some(format!("{target} soaking {}", since.0)));
        (CanaryState::Soaking { until }, remember)
    }
}
