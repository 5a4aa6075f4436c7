//! What an administrator has configured for changes: the MachineConfiguration `cluster`.

use crate::api::operator::{MachineConfiguration, NodeDisruptionPolicy};
use crate::disruption::{system_policy, with_system_policy};
use crate::reconcile_check::ValidationOverrides;

/// The policy in effect: the one in the status, if an operator has computed it for the current spec;
/// otherwise the policy of the spec on top of the system's policies.
#[must_use]
pub fn effective_disruption_policy(object: Option<&MachineConfiguration>) -> NodeDisruptionPolicy {
    let Some(object) = object else { return system_policy() };
    let status = object.status.as_ref().filter(|status| {
        status.observed_generation.is_some()
            && status.observed_generation == object.metadata.generation
    });
    let worked_out = status
        .and_then(|status| status.node_disruption_policy_status.as_ref())
        .and_then(|status| status.cluster_policies.clone());
    let wished = object.spec.node_disruption_policy.as_ref();
    worked_out.unwrap_or_else(|| wished.map_or_else(system_policy, with_system_policy))
}

/// Which changes are allowed although a running machine cannot apply them.
#[must_use]
pub fn validation_overrides(object: Option<&MachineConfiguration>) -> ValidationOverrides {
    let given = object
        .and_then(|object| object.spec.irreconcilable_validation_overrides.as_ref())
        .and_then(|overrides| overrides.storage.as_deref())
        .unwrap_or_default();
    let has = |word: &str| given.iter().any(|own| own == word);
    ValidationOverrides {
        disks: has("Disks"),
        filesystems: has("FileSystems"),
        raid: has("Raid"),
        any_user: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(generation: i64, spec: &Value, status: &Value) -> MachineConfiguration {
        serde_json::from_value(json!({
            "apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
            "metadata": {"name": "cluster", "generation": generation},
            "spec": spec, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn which_policy_is_in_effect() {
        let entry = |path: &str| json!([{"path": path, "actions": [{"type": "None"}]}]);
        let spec = json!({"nodeDisruptionPolicy": {"files": entry("/wished")}});
        let status = |generation: i64| {
            json!({"observedGeneration": generation, "nodeDisruptionPolicyStatus":
                {"clusterPolicies": {"files": entry("/status")}}})
        };
        let paths = |policy: NodeDisruptionPolicy| -> Vec<String> {
            policy.files.unwrap_or_default().into_iter().map(|file| file.path).collect()
        };
        assert_eq!(effective_disruption_policy(None), system_policy());
        assert_eq!(
            paths(effective_disruption_policy(Some(&object(2, &spec, &status(2))))),
            ["/status"]
        );
        // An outdated status does not count, and without an operator there is none.
        for status in [status(1), json!({})] {
            let found = paths(effective_disruption_policy(Some(&object(2, &spec, &status))));
            assert_eq!(found.last().map(String::as_str), Some("/wished"));
            assert!(found.len() > 10);
        }
        assert_eq!(
            effective_disruption_policy(Some(&object(1, &json!({}), &json!({})))),
            system_policy()
        );
    }

    #[test]
    fn which_refusals_are_overridden() {
        let spec = json!({"irreconcilableValidationOverrides": {"storage": ["Disks", "Raid"]}});
        let found = validation_overrides(Some(&object(1, &spec, &json!({}))));
        assert!(found.disks && found.raid && !found.filesystems);
        assert_eq!(validation_overrides(None), ValidationOverrides::default());
    }
}
