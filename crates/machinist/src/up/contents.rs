//! What the hub holds from the start.

use anyhow::Result;
use machinist_core::api::crds::crds;
use machinist_hub::auth::MACHINES;
use machinist_hub::auth::roles::{Names, READ, Rule};
use serde_json::{Value, json};

const GROUP: &str = "machineconfiguration.openshift.io";
/// The group of what an administrator says about changes.
const OPERATOR_GROUP: &str = "operator.openshift.io";
/// The namespace of the system's own objects.
pub const NAMESPACE: &str = "openshift-machine-config-operator";
/// The pools that are there from the start.
const POOLS: &[&str] = &["master", "worker"];

/// The definitions of all kinds.
///
/// # Errors
/// None in practice: they are made of our own types.
pub fn definitions() -> Result<Vec<Value>> {
    crds()
        .iter()
        .map(|crd| {
            let mut value = serde_json::to_value(crd)?;
            value["apiVersion"] = "apiextensions.k8s.io/v1".into();
            value["kind"] = "CustomResourceDefinition".into();
            Ok(value)
        })
        .collect()
}

/// What machines may do with our kinds: read the configuration, and report on themselves.
#[must_use]
pub fn rules() -> Vec<Rule> {
    let reports = "get list watch create update patch";
    vec![
        Rule::new(
            MACHINES,
            READ,
            GROUP,
            "machineconfigs machineconfigpools controllerconfigs",
            Names::Any,
        ),
        Rule::new(MACHINES, READ, OPERATOR_GROUP, "machineconfigurations", Names::Any),
        Rule::new(MACHINES, reports, GROUP, "machineconfignodes", Names::Own),
        Rule::new(MACHINES, "get update patch", GROUP, "machineconfignodes/status", Names::Own),
    ]
}

/// The namespaces that are there from the start.
#[must_use]
pub fn namespaces() -> Vec<String> {
    vec![NAMESPACE.to_owned()]
}

/// The objects that are there from the start.
#[must_use]
pub fn objects() -> Vec<Value> {
    POOLS.iter().map(|name| pool(name)).collect()
}

fn pool(name: &str) -> Value {
    let select = |key: &str, value: &str| json!({"matchLabels": {key: value}});
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "MachineConfigPool",
        "metadata": {
            "name": name,
            "labels": {
                format!("{GROUP}/mco-built-in"): "",
                format!("pools.operator.{GROUP}/{name}"): "",
            },
        },
        "spec": {
            "machineConfigSelector": select(&format!("{GROUP}/role"), name),
            "nodeSelector": select(&format!("node-role.kubernetes.io/{name}"), ""),
            "configuration": {},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_select_by_role() {
        let pool = pool("worker");
        assert_eq!(
            pool["spec"]["machineConfigSelector"]["matchLabels"],
            json!({"machineconfiguration.openshift.io/role": "worker"})
        );
        assert_eq!(
            pool["metadata"]["labels"]["pools.operator.machineconfiguration.openshift.io/worker"],
            ""
        );
    }

    #[test]
    fn definitions_say_what_they_are() {
        let all = definitions().unwrap();
        assert!(all.len() > 20);
        assert!(all.iter().all(|crd| crd["kind"] == "CustomResourceDefinition"));
    }
}
