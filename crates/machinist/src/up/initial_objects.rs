//! The objects that a new hub contains.

use std::collections::BTreeSet;

use anyhow::Result;
use machinist_core::api::crds::crds;
use machinist_core::api::names::{annotation, object};
use machinist_core::redact::outline_machine_config;
use machinist_hub::ViewerRedaction;
use machinist_hub::auth::NODE_GROUP;
use machinist_hub::auth::authorizer::{PolicyRule, READ_VERBS, ResourceNames};
use machinist_hub::auth::node_graph::NodeRelation;
use serde_json::{Value, json};

const GROUP: &str = "machineconfiguration.openshift.io";
/// The API group of the MachineConfiguration.
const OPERATOR_GROUP: &str = "operator.openshift.io";
/// The namespace of Machinist's own objects.
pub const NAMESPACE: &str = "openshift-machine-config-operator";
/// The initial pools.
const DEFAULT_POOLS: &[&str] = &["master", "worker"];

/// The CustomResourceDefinitions of all kinds.
///
/// # Errors
/// None in practice: they are generated from our own types.
pub fn crd_objects() -> Result<Vec<Value>> {
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

/// What viewers may not read besides Secrets: it contains the cluster's pull secret and certificates.
#[must_use]
pub fn hidden_from_viewers() -> Vec<(String, String)> {
    vec![(GROUP.to_owned(), "controllerconfigs".to_owned())]
}

/// What viewers see without its contents.
#[must_use]
pub fn viewer_redactions() -> Vec<ViewerRedaction> {
    vec![ViewerRedaction {
        group: GROUP.to_owned(),
        resource: "machineconfigs".to_owned(),
        redact: outline_machine_config,
    }]
}

/// The permissions of machines: read their own configs, and report their own status.
#[must_use]
pub fn machine_rules() -> Vec<PolicyRule> {
    let reports = "get list watch create update patch";
    let assigned = |annotation| {
        let owner_kind = "MachineConfigPool";
        let names = ResourceNames::Related(NodeRelation::Assigned { annotation, owner_kind });
        PolicyRule::new(NODE_GROUP, READ_VERBS, GROUP, "machineconfigs", names)
    };
    vec![
        assigned(annotation::DESIRED_CONFIG),
        // A machine that is only observed compares itself with this one.
        assigned(annotation::machinist::OBSERVED_CONFIG),
        PolicyRule::new(
            NODE_GROUP,
            READ_VERBS,
            GROUP,
            "machineconfigpools",
            ResourceNames::Related(NodeRelation::NamedLikeRole),
        ),
        PolicyRule::new(
            NODE_GROUP,
            READ_VERBS,
            GROUP,
            "controllerconfigs",
            ResourceNames::Named(object::CONTROLLER_CONFIG),
        ),
        PolicyRule::new(
            NODE_GROUP,
            READ_VERBS,
            OPERATOR_GROUP,
            "machineconfigurations",
            ResourceNames::Named(object::CLUSTER),
        ),
        PolicyRule::new(NODE_GROUP, reports, GROUP, "machineconfignodes", ResourceNames::OwnNode),
        PolicyRule::new(
            NODE_GROUP,
            "get update patch",
            GROUP,
            "machineconfignodes/status",
            ResourceNames::OwnNode,
        ),
    ]
}

/// Annotations of Nodes that are instructions for machines, which machines themselves do not write.
#[must_use]
pub fn protected_annotations() -> Vec<String> {
    vec![annotation::machinist::UPGRADE.to_owned()]
}

/// Names that no machine may have: those of components, of their leases and of their identities.
const RESERVED_NODE_NAMES: &[&str] = &[
    "admin",
    "machine-config",
    "machine-config-controller",
    "machine-config-daemon",
    "machine-config-operator",
    "machine-config-server",
    "machinist",
    "machinist-controller",
    "machinist-operator",
    "machinist-server",
    "machinist-up",
];

/// Names that no machine may have.
#[must_use]
pub fn reserved_node_names() -> BTreeSet<String> {
    RESERVED_NODE_NAMES.iter().map(|name| (*name).to_owned()).collect()
}

/// The initial namespaces.
#[must_use]
pub fn namespaces() -> Vec<String> {
    vec![NAMESPACE.to_owned()]
}

/// The initial objects.
#[must_use]
pub fn objects() -> Vec<Value> {
    DEFAULT_POOLS.iter().map(|name| pool(name)).collect()
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
    fn definitions_have_a_kind_and_a_name() {
        let all = crd_objects().unwrap();
        assert!(all.len() > 20);
        assert!(all.iter().all(|crd| crd["kind"] == "CustomResourceDefinition"));
    }
}
