//! What the pools mean for the release: whether a required pool is stuck, and whether a pool blocks
//! the next upgrade.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::condition::pool as condition;
use crate::api::names::label;
use crate::api::{Condition, MachineConfigPool, MachineConfigPoolStatus, find_condition};
use crate::rollout::{RebootPolicy, RolloutPolicy};

/// How long each machine of the required pools may take, as in MCO.
const TIMEOUT_PER_MACHINE: Duration = Duration::from_secs(10 * 60);

/// Why a required pool is not up to date, if it is stuck.
pub(super) fn stuck_reason(pools: &[&MachineConfigPool], now: &Time) -> Option<String> {
    let required: Vec<_> = pools.iter().filter(|pool| is_required(pool)).collect();
    let machines: i32 = required.iter().filter_map(|pool| status(pool).machine_count).sum();
    let timeout = TIMEOUT_PER_MACHINE * u32::try_from(machines.max(1)).unwrap_or(1);
    required.iter().find_map(|pool| required_pool_stuck_reason(pool, timeout, now))
}

/// Why an upgrade should wait, if it should: a reason and a message.
pub(super) fn upgrade_blocker(pools: &[&MachineConfigPool]) -> Option<(&'static str, String)> {
    let degraded = pools.iter().find(|pool| is_condition_true(pool, condition::DEGRADED));
    let interrupted =
        pools.iter().find(|pool| is_condition_true(pool, condition::BUILD_INTERRUPTED));
    // Worker pools are paused on purpose to skip intermediate releases.
    let paused = pools.iter().find(|pool| is_required(pool) && is_paused_before_a_change(pool));
    let see = "please see `kubectl get mcp` for further details and resolve before upgrading";
    if let Some(pool) = degraded {
        let message = format!("MachineConfigPool {} is degraded, {see}", name(pool));
        return Some(("DegradedPool", message));
    }
    if let Some(pool) = interrupted {
        let message =
            format!("the build of MachineConfigPool {} has been interrupted, {see}", name(pool));
        return Some(("InterruptedBuild", message));
    }
    paused.map(|pool| ("PausedPool", paused_message(pool)))
}

/// Why one required pool is stuck.
fn required_pool_stuck_reason(
    pool: &MachineConfigPool,
    timeout: Duration,
    now: &Time,
) -> Option<String> {
    if is_condition_true(pool, condition::DEGRADED) {
        let causes = [condition::RENDER_DEGRADED, condition::NODE_DEGRADED, condition::DEGRADED];
        let mut said = causes.iter().filter_map(|cause| true_condition_message(pool, cause));
        let message = said.find(|text| !text.is_empty()).unwrap_or_default();
        return Some(format!("MachineConfigPool {} is degraded: {message}", name(pool)));
    }
    if is_paused_before_a_change(pool) {
        return Some(paused_message(pool));
    }
    let updating = find_pool_condition(pool, condition::UPDATING).filter(|it| it.is_true())?;
    let since = updating.last_transition_time.as_ref()?;
    let lasts = Duration::try_from(now.0.duration_since(since.0)).ok()?;
    let timeout = timeout + policy_wait(pool)?;
    (lasts > timeout).then(|| {
        let status = status(pool);
        let count = |count: Option<i32>| count.unwrap_or_default();
        let blocked = true_condition_message(pool, condition::ROLLOUT_BLOCKED);
        format!(
            "required MachineConfigPool {} is not ready; its machines have been updating since {}. Status: (total: {}, ready {}, updated: {}, unavailable: {}, degraded: {}){}; see `machinist rollout status {0}`",
            name(pool),
            // Not the duration: a message that always differs would be reported every time.
            since.0,
            count(status.machine_count),
            count(status.ready_machine_count),
            count(status.updated_machine_count),
            count(status.unavailable_machine_count),
            count(status.degraded_machine_count),
            blocked.map(|text| format!(": {text}")).unwrap_or_default(),
        )
    })
}

/// How long a pool waits because of its rollout policy, in addition to the updates; `None` if that
/// has no known end: a maintenance window, or reboots that an administrator approves. An invalid
/// policy is no reason to wait.
fn policy_wait(pool: &MachineConfigPool) -> Option<Duration> {
    let policy = RolloutPolicy::from_annotations(pool).unwrap_or_default();
    let is_open = policy.windows.is_none() && policy.reboot == RebootPolicy::Immediate;
    is_open.then_some(policy.soak)
}

fn paused_message(pool: &MachineConfigPool) -> String {
    format!(
        "required MachineConfigPool {} is paused and cannot sync until it is unpaused: run `machinist resume {0}`",
        name(pool)
    )
}

fn is_paused_before_a_change(pool: &MachineConfigPool) -> bool {
    let status = status(pool);
    let (all, updated) = (status.machine_count, status.updated_machine_count);
    pool.spec.paused == Some(true) && updated.unwrap_or_default() < all.unwrap_or_default()
}

fn is_required(pool: &MachineConfigPool) -> bool {
    let labels = pool.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(label::REQUIRED_FOR_UPGRADE))
}

fn name(pool: &MachineConfigPool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

fn status(pool: &MachineConfigPool) -> MachineConfigPoolStatus {
    pool.status.clone().unwrap_or_default()
}

fn find_pool_condition<'a>(pool: &'a MachineConfigPool, type_: &str) -> Option<&'a Condition> {
    find_condition(pool.status.as_ref()?.conditions.as_deref()?, type_)
}

fn is_condition_true(pool: &MachineConfigPool, type_: &str) -> bool {
    find_pool_condition(pool, type_).is_some_and(Condition::is_true)
}

/// The message of a condition that is true.
fn true_condition_message(pool: &MachineConfigPool, type_: &str) -> Option<String> {
    find_pool_condition(pool, type_).filter(|it| it.is_true())?.message.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::annotation::machinist;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-01T10:00:00Z";

    /// A required pool of three machines, one of which lacks the config; `more` is merged into it.
    fn pool(since: &str, more: &Value) -> MachineConfigPool {
        let mut object = json!({
            "metadata": {"name": "master", "labels": {label::REQUIRED_FOR_UPGRADE: ""}, "annotations": {}},
            "spec": {"paused": false},
            "status": {
                "machineCount": 3, "readyMachineCount": 2, "updatedMachineCount": 2,
                "conditions": [
                    {"type": "Updating", "status": "True", "lastTransitionTime": since},
                    {"type": "RolloutBlocked", "status": "True", "message": "a budget"},
                ],
            },
        });
        for (pointer, value) in more.as_object().unwrap() {
            *object.pointer_mut(pointer).unwrap() = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn asked(since: &str, more: &Value) -> String {
        let pool = pool(since, more);
        stuck_reason(&[&pool], &Time(NOW.parse().unwrap())).unwrap_or_default()
    }

    #[test]
    fn a_required_pool_has_ten_minutes_for_each_machine() {
        let (late, early) = ("2026-01-01T09:29:00Z", "2026-01-01T09:31:00Z");
        let late_text = "required MachineConfigPool master is not ready; its machines have been updating since 2026-01-01T09:29:00Z. Status: (total: 3, ready 2, updated: 2, unavailable: 0, degraded: 0): a budget; see `machinist rollout status master`";
        let policy = |key: &str, value: &str| json!({"/metadata/annotations": {key: value}});
        for (why, since, more, expected) in [
            ("within the timeout", early, json!({}), ""),
            ("timed out", late, json!({}), late_text),
            ("updated", late, json!({"/status/conditions/0/status": "False"}), ""),
            ("not required", late, json!({"/metadata/labels": {}}), ""),
            ("two machines have less time", early, json!({"/status/machineCount": 2}), "29"),
            (
                "waits for its maintenance window",
                late,
                policy(machinist::MAINTENANCE_WINDOW, "Sat 02:00-05:00 UTC"),
                "",
            ),
            ("waits for an approval", late, policy(machinist::REBOOT, "deferred"), ""),
            ("soaks", late, policy(machinist::CANARY_SOAK, "1h"), ""),
            ("soaked long enough", late, policy(machinist::CANARY_SOAK, "30s"), late_text),
            ("clocks differ", "2026-01-01T11:00:00Z", json!({}), ""),
        ] {
            let found = asked(since, &more);
            match expected {
                // Twenty minutes have passed, too.
                "29" => assert!(found.contains("since 2026-01-01T09:31:00Z"), "{why}: {found}"),
                expected => assert_eq!(found, expected, "{why}"),
            }
        }
    }

    #[test]
    fn a_paused_pool_with_a_pending_change_is_reported_at_once() {
        let since = "2026-01-01T09:59:00Z";
        let paused = "required MachineConfigPool master is paused and cannot sync until it is unpaused: run `machinist resume master`";
        assert_eq!(asked(since, &json!({"/spec/paused": true})), paused);
        let done = json!({"/spec/paused": true, "/status/updatedMachineCount": 3, "/status/conditions": []});
        assert_eq!(asked(since, &done), "");
    }

    #[test]
    fn pools_block_the_next_release() {
        let is = |type_: &str| json!({"/status/conditions": [{"type": type_, "status": "True"}]});
        for (more, expected) in [
            (json!({}), None),
            (is("Degraded"), Some("DegradedPool")),
            (is("BuildInterrupted"), Some("InterruptedBuild")),
            (json!({"/spec/paused": true}), Some("PausedPool")),
            (json!({"/spec/paused": true, "/status/updatedMachineCount": 3}), None),
            (json!({"/spec/paused": true, "/metadata/labels": {}}), None),
        ] {
            let pool = pool(NOW, &more);
            assert_eq!(upgrade_blocker(&[&pool]).map(|(reason, _)| reason), expected, "{more}");
        }
    }
}
