//! The operator's conditions (Available, Progressing, Degraded, Upgradeable) and versions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::component_order::{ComponentStatus, OperatorComponent};
use super::pools;
use crate::api::names::{GROUP, object};
use crate::api::{Condition, MachineConfigPool, find_condition, set_condition};

/// The components work.
pub const AVAILABLE: &str = "Available";
/// A release is rolling out.
pub const PROGRESSING: &str = "Progressing";
/// Something is wrong and needs attention.
pub const DEGRADED: &str = "Degraded";
/// An upgrade to the next release is possible.
pub const UPGRADEABLE: &str = "Upgradeable";
/// The reason of a condition in its normal state.
const AS_EXPECTED: &str = "AsExpected";

/// What failed in a reconcile pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorFailure {
    /// The task that failed, for example `RenderConfig`.
    pub task: &'static str,
    /// The error.
    pub message: String,
}

/// What is known after a reconcile pass.
#[derive(Debug, Clone, Copy)]
pub struct OperatorSnapshot<'a> {
    /// The desired release.
    pub release: &'a str,
    /// The release that the controller, the first component of a rollout, had before the pass.
    pub previous_release: Option<&'a str>,
    /// The desired components.
    pub components: &'a [(OperatorComponent, ComponentStatus)],
    /// What failed, if anything did.
    pub failure: Option<&'a OperatorFailure>,
    /// The pools.
    pub pools: &'a [&'a MachineConfigPool],
    /// Additional information about the system.
    pub remark: Option<&'a str>,
}

/// Whether a release is rolled out: all components have it and are ready, or it was rolled out
/// before. A rebooting machine takes its daemon down for a while, which does not make the release
/// progress again.
#[must_use]
pub fn is_rolled_out(before: &[Condition], facts: &OperatorSnapshot<'_>) -> bool {
    // The condition is about the release that the controller had: a new one begins with the controller.
    let had_arrived = facts.previous_release == Some(facts.release)
        && find_condition(before, PROGRESSING).is_some_and(|it| it.status == "False");
    let has = |(_, seen): &(OperatorComponent, ComponentStatus)| {
        seen.release.as_deref() == Some(facts.release)
    };
    let is_ready =
        |(_, seen): &(OperatorComponent, ComponentStatus)| seen.not_ready_reason.is_none();
    facts.components.iter().all(has) && (had_arrived || facts.components.iter().all(is_ready))
}

/// The conditions after a reconcile pass; those of others are kept.
#[must_use]
pub fn conditions(
    before: &[Condition],
    facts: &OperatorSnapshot<'_>,
    now: &Time,
) -> Vec<Condition> {
    let mut after = before.to_vec();
    let mut set = |type_: &str, (holds, reason, message): (bool, &str, String)| {
        set_condition(&mut after, type_, holds, reason, &message, now);
    };
    let arrived = is_rolled_out(before, facts);
    set(AVAILABLE, available(facts));
    set(PROGRESSING, progressing(facts, arrived));
    set(DEGRADED, degraded(facts, arrived, now));
    set(UPGRADEABLE, upgradeable(facts));
    after
}

fn available(facts: &OperatorSnapshot<'_>) -> (bool, &'static str, String) {
    let controller =
        facts.components.iter().find(|(part, _)| *part == OperatorComponent::Controller);
    if controller.is_none_or(|(_, seen)| seen.available == 0) {
        let waits = controller.and_then(|(_, seen)| seen.not_ready_reason.clone());
        let message = waits.unwrap_or_else(|| "no controller is configured".to_owned());
        return (false, "NoController", message);
    }
    let mut message = format!("Cluster has deployed {}", facts.release);
    if let Some(remark) = facts.remark {
        message = format!("{message}; {remark}");
    }
    (true, AS_EXPECTED, message)
}

fn progressing(facts: &OperatorSnapshot<'_>, has_arrived: bool) -> (bool, &'static str, String) {
    if has_arrived {
        return (false, AS_EXPECTED, format!("Cluster version is {}", facts.release));
    }
    let reason = |(_, seen): &(OperatorComponent, ComponentStatus)| {
        (!seen.is_rolled_out(facts.release)).then(|| not_updated_reason(seen))
    };
    let first = facts.components.iter().find_map(reason).unwrap_or_default();
    (true, "RollingOut", format!("Working towards {}: {first}", facts.release))
}

/// Why a component does not have the release.
fn not_updated_reason(seen: &ComponentStatus) -> String {
    seen.not_ready_reason
        .clone()
        .unwrap_or_else(|| "it waits for the components before it".to_owned())
}

fn degraded(
    facts: &OperatorSnapshot<'_>,
    has_arrived: bool,
    now: &Time,
) -> (bool, &'static str, String) {
    let release = facts.release;
    if let Some(failure) = facts.failure {
        let what = if has_arrived { "Failed to resync" } else { "Unable to apply" };
        let message = format!("{what} {release}: {}", failure.message);
        return (true, reason_of(failure.task), message);
    }
    match pools::stuck_reason(facts.pools, now) {
        Some(message) => (true, "RequiredPoolsFailed", message),
        None => (false, AS_EXPECTED, String::new()),
    }
}

fn reason_of(task: &str) -> &'static str {
    match task {
        "Settings" => "SettingsFailed",
        "Certificates" => "CertificatesFailed",
        "BootstrapToken" => "BootstrapTokenFailed",
        "ControllerConfig" => "ControllerConfigFailed",
        "Observe" => "ObserveFailed",
        _ => "ApplyFailed",
    }
}

fn upgradeable(facts: &OperatorSnapshot<'_>) -> (bool, &'static str, String) {
    match pools::upgrade_blocker(facts.pools) {
        Some((reason, message)) => (false, reason, message),
        None => (true, AS_EXPECTED, String::new()),
    }
}

/// The status of the ClusterOperator `machine-config`. The versions are those that are rolled out.
#[must_use]
pub fn cluster_operator_status(
    before: &Value,
    conditions: &[Condition],
    arrived: Option<(&str, &str)>,
    namespace: &str,
) -> Value {
    let versions = match arrived {
        Some((release, image)) => json!([
            {"name": "operator", "version": release},
            {"name": "operator-image", "version": image},
        ]),
        None => before["status"]["versions"].clone(),
    };
    let related = |group: &str, resource: &str, name: &str| json!({"group": group, "resource": resource, "name": name});
    json!({
        "conditions": conditions,
        "versions": if versions.is_null() { json!([]) } else { versions },
        "relatedObjects": [
            related("", "namespaces", namespace),
            related(GROUP, "machineconfigpools", ""),
            related(GROUP, "controllerconfigs", ""),
            related(GROUP, "kubeletconfigs", ""),
            related(GROUP, "containerruntimeconfigs", ""),
            related(GROUP, "machineconfigs", ""),
            related("operator.openshift.io", "machineconfigurations", object::CLUSTER),
            related("", "nodes", ""),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::label;

    fn seen(release: &str, waits: Option<&str>) -> ComponentStatus {
        let waits = waits.map(str::to_owned);
        ComponentStatus {
            release: Some(release.to_owned()),
            present: true,
            not_ready_reason: waits,
            available: 1,
        }
    }

    fn shown(conditions: &[Condition]) -> String {
        let one = |it: &Condition| {
            format!("{}={} {}", it.type_, it.status, it.reason.as_deref().unwrap_or_default())
        };
        conditions.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn time(text: &str) -> Time {
        Time(text.parse().unwrap())
    }

    fn pool(name: &str, degraded: bool, required: bool) -> MachineConfigPool {
        let labels = if required { json!({label::REQUIRED_FOR_UPGRADE: ""}) } else { json!({}) };
        let word = if degraded { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels}, "spec": {},
            "status": {"conditions": [
                {"type": "Degraded", "status": word},
                {"type": "NodeDegraded", "status": word, "message": "Node a is degraded"},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn a_release_rolls_out_and_a_rebooting_machine_changes_nothing() {
        let now = time("2026-01-01T00:00:00Z");
        let parts = |daemon: ComponentStatus| {
            [(OperatorComponent::Controller, seen("1", None)), (OperatorComponent::Daemon, daemon)]
        };
        let facts = |parts| OperatorSnapshot {
            release: "1",
            previous_release: Some("1"),
            components: parts,
            failure: None,
            pools: &[],
            remark: None,
        };
        let waiting = parts(seen("1", Some("not ready")));
        let first = conditions(&[], &facts(&waiting), &now);
        assert_eq!(
            shown(&first),
            "Available=True AsExpected, Progressing=True RollingOut, Degraded=False AsExpected, Upgradeable=True AsExpected"
        );
        let ready = parts(seen("1", None));
        let second = conditions(&first, &facts(&ready), &time("2026-01-01T00:01:00Z"));
        assert!(!find_condition(&second, PROGRESSING).unwrap().is_true());
        let again = conditions(&second, &facts(&waiting), &time("2026-01-01T00:02:00Z"));
        assert_eq!(again, second, "nothing is written if nothing changed");
        let newer = OperatorSnapshot { release: "2", ..facts(&ready) };
        let third = conditions(&again, &newer, &time("2026-01-01T00:03:00Z"));
        let progressing = find_condition(&third, PROGRESSING).unwrap();
        assert!(
            progressing.is_true()
                && progressing.message.as_deref().unwrap().starts_with("Working towards 2")
        );
        // All components were replaced within the pass: that the old release had arrived says nothing about them.
        let replaced = [(OperatorComponent::Controller, seen("2", Some("not ready")))];
        let newer = OperatorSnapshot { release: "2", ..facts(&replaced) };
        assert!(!is_rolled_out(&again, &newer));
        let rebooting = OperatorSnapshot { previous_release: Some("2"), ..newer };
        assert!(is_rolled_out(&again, &rebooting));
    }

    #[test]
    fn failures_become_conditions() {
        let now = time("2026-01-01T00:00:00Z");
        let parts = [(OperatorComponent::Controller, seen("1", None))];
        let failure = OperatorFailure { task: "Settings", message: "data.server: no".to_owned() };
        let facts = OperatorSnapshot {
            release: "1",
            previous_release: Some("1"),
            components: &parts,
            failure: Some(&failure),
            pools: &[],
            remark: None,
        };
        let found = conditions(&[], &facts, &now);
        let degraded = find_condition(&found, DEGRADED).unwrap();
        assert_eq!(degraded.reason.as_deref(), Some("SettingsFailed"));
        assert_eq!(degraded.message.as_deref(), Some("Failed to resync 1: data.server: no"));
        for (required, expected) in
            [(true, "True RequiredPoolsFailed"), (false, "False AsExpected")]
        {
            let ill = pool("p", true, required);
            let facts = OperatorSnapshot { failure: None, pools: &[&ill], ..facts };
            let found = shown(&conditions(&[], &facts, &now));
            assert!(found.contains(&format!("Degraded={expected}")), "{found}");
            assert!(found.contains("Upgradeable=False DegradedPool"), "{found}");
        }
        let none = OperatorSnapshot { components: &[], failure: None, ..facts };
        assert!(shown(&conditions(&[], &none, &now)).starts_with("Available=False NoController"));
    }

    #[test]
    fn versions_change_once_they_are_rolled_out() {
        let before = json!({"status": {"versions": [{"name": "operator", "version": "1"}]}});
        let status = cluster_operator_status(&before, &[], None, "ns");
        assert_eq!(status["versions"][0]["version"], "1");
        let status = cluster_operator_status(&before, &[], Some(("2", "i:2")), "ns");
        assert_eq!(status["versions"][0]["version"], "2");
        assert_eq!(cluster_operator_status(&Value::Null, &[], None, "ns")["versions"], json!([]));
    }
}
