//! Labels for machines that boot straight into a custom pool. Their first config is the pool's, but
//! the kubelet creates their Node without the pool's labels, so they would fall back to `worker`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::api::names::annotation;
use crate::api::names::object::{POOL_MASTER, POOL_WORKER};
use crate::api::{MachineConfig, MachineConfigPool};

use crate::node::NodeView;

/// The missing labels as a merge patch, with an annotation that records that they were added. `None`
/// for all other machines.
#[must_use]
pub fn custom_pool_labels<'a>(
    node: &Node,
    config_of: impl Fn(&str) -> Option<&'a MachineConfig>,
    pool_of: impl Fn(&str) -> Option<&'a MachineConfigPool>,
) -> Option<Value> {
    let view = NodeView(node);
    if view.annotation(annotation::CUSTOM_POOL_LABELS_APPLIED).is_some() {
        return None;
    }
    let first = config_of(view.annotation(annotation::FIRST_PIVOT_CONFIG)?)?;
    let mut owners = first.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.kind == "MachineConfigPool")?;
    if matches!(owner.name.as_str(), POOL_MASTER | POOL_WORKER) {
        return None;
    }
    let labels = labels_of(pool_of(&owner.name)?);
    let mark = json!({annotation::CUSTOM_POOL_LABELS_APPLIED: ""});
    Some(json!({"metadata": {"labels": labels, "annotations": mark}}))
}

/// The labels that a pool's selector requires, as far as they follow from it.
fn labels_of(pool: &MachineConfigPool) -> BTreeMap<String, String> {
    let Some(selector) = &pool.spec.node_selector else { return BTreeMap::new() };
    let mut labels = selector.match_labels.clone().unwrap_or_default();
    for requirement in selector.match_expressions.iter().flatten() {
        let values = requirement.values.as_deref().unwrap_or_default();
        match (requirement.operator.as_str(), values) {
            ("In", [only]) => labels.insert(requirement.key.clone(), only.clone()),
            ("Exists", _) => labels.insert(requirement.key.clone(), String::new()),
            _ => None,
        };
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(kind: &str, mut value: Value) -> T {
        value["apiVersion"] = "machineconfiguration.openshift.io/v1".into();
        value["kind"] = kind.into();
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_machine_of_a_custom_pool_gets_its_labels_once() {
        let pool: MachineConfigPool = read(
            "MachineConfigPool",
            json!({"metadata": {"name": "infra"}, "spec": {"nodeSelector": {
                "matchLabels": {"node-role.kubernetes.io/infra": ""},
                "matchExpressions": [
                    {"key": "disk", "operator": "In", "values": ["fast"]},
                    {"key": "size", "operator": "In", "values": ["s", "m"]},
                    {"key": "gpu", "operator": "Exists"},
                ],
            }}}),
        );
        let config = |owner: &str| -> MachineConfig {
            read(
                "MachineConfig",
                json!({"spec": {}, "metadata": {"name": "rendered-infra-1", "ownerReferences": [
                    {"apiVersion": "x", "kind": "MachineConfigPool", "name": owner, "uid": "u"},
                ]}}),
            )
        };
        let node = |annotations: Value| -> Node {
            serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
        };
        let ask = |node: &Node, config: &MachineConfig| {
            custom_pool_labels(
                node,
                |name| (name == "rendered-infra-1").then_some(config),
                |name| (name == "infra").then_some(&pool),
            )
        };
        let first = json!({annotation::FIRST_PIVOT_CONFIG: "rendered-infra-1"});
        let patch = ask(&node(first.clone()), &config("infra")).unwrap();
        let labels = json!({"node-role.kubernetes.io/infra": "", "disk": "fast", "gpu": ""});
        assert_eq!(patch["metadata"]["labels"], labels);
        assert_eq!(ask(&node(first.clone()), &config("worker")), None);
        assert_eq!(ask(&node(json!({})), &config("infra")), None);
        let mut done = first;
        done[annotation::CUSTOM_POOL_LABELS_APPLIED] = "".into();
        assert_eq!(ask(&node(done), &config("infra")), None);
    }
}
