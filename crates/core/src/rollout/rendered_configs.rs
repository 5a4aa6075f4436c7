//! Which rendered configs are needed, and which may be deleted.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;

use crate::api::names::annotation::{
    CURRENT_CONFIG, DESIRED_CONFIG, FIRST_PIVOT_CONFIG, machinist,
};
use crate::api::names::object::RENDERED_PREFIX;
use crate::api::{MachineConfig, MachineConfigNode, MachineConfigPool};

use super::membership::{MembershipError, pools_of};
use crate::node::NodeView;

/// The rendered configs that may be deleted, oldest first: no pool, machine or MachineConfigNode
/// refers to them, and they are not among the last `keep` of their pool. The caller must pass all
/// pools and all machines, or a config in use could be deleted.
#[must_use]
pub fn removable_configs(
    pools: &[impl Borrow<MachineConfigPool>],
    nodes: &[impl Borrow<Node>],
    machine_config_nodes: &[impl Borrow<MachineConfigNode>],
    rendered: &[impl Borrow<MachineConfig>],
    keep: usize,
) -> Vec<String> {
    let used = referenced_names(pools, nodes, machine_config_nodes);
    let mut by_pool: BTreeMap<&str, Vec<&MachineConfig>> = BTreeMap::new();
    for config in rendered {
        let config = config.borrow();
        if let Some(pool) = pool_of(config) {
            by_pool.entry(pool).or_default().push(config);
        }
    }
    let age = |config: &&MachineConfig| {
        let created = config.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, config.metadata.name.clone())
    };
    let mut old: Vec<&MachineConfig> = Vec::new();
    for configs in by_pool.values_mut() {
        configs.sort_by_key(|config| Reverse(age(config)));
        old.extend(configs.iter().skip(keep));
    }
    old.sort_by_key(age);
    let names = old.iter().filter_map(|config| config.metadata.name.as_deref());
    names.filter(|name| !used.contains(name)).map(str::to_owned).collect()
}

/// The rendered configs that a pool refers to, or a machine of the pool that they were rendered for. They are backed up,
/// and restored if they are deleted. A machine writes its own Node: it must not bring back the configs of other pools.
#[must_use]
pub fn referenced_configs(
    pools: &[impl Borrow<MachineConfigPool>],
    nodes: &[impl Borrow<Node>],
) -> BTreeSet<String> {
    let (no_nodes, no_machines): ([Node; 0], [MachineConfigNode; 0]) = ([], []);
    let mut names = referenced_names(pools, &no_nodes, &no_machines);
    for node in nodes {
        let own_pools = selecting_pools(node.borrow(), pools);
        let is_own = |name: &&str| {
            let pool = name.strip_prefix(RENDERED_PREFIX).and_then(|rest| rest.rsplit_once('-'));
            pool.is_some_and(|(pool, _)| own_pools.iter().any(|own| own == pool))
        };
        names.extend(names_on_node(node.borrow()).filter(is_own));
    }
    names.into_iter().filter(|name| name.starts_with(RENDERED_PREFIX)).map(str::to_owned).collect()
}

/// The names of the pools that select a machine.
fn selecting_pools(node: &Node, pools: &[impl Borrow<MachineConfigPool>]) -> Vec<String> {
    match pools_of(node, pools) {
        Ok(pools) => pools.iter().filter_map(|pool| pool.metadata.name.clone()).collect(),
        Err(MembershipError::MultipleCustomPools { pools, .. }) => pools,
        Err(MembershipError::InvalidSelector { .. } | MembershipError::InvalidNodeNames { .. }) => {
            Vec::new()
        }
    }
}

/// The configs that the annotations of a Node name.
fn names_on_node(node: &Node) -> impl Iterator<Item = &str> {
    let keys = [CURRENT_CONFIG, DESIRED_CONFIG, FIRST_PIVOT_CONFIG, machinist::REBOOT_PENDING];
    keys.into_iter().filter_map(move |key| NodeView(node).annotation(key))
}

/// The pool that a config was rendered for, by its owner, else by its name. `None` for a config that
/// is not rendered.
pub(crate) fn pool_of(config: &MachineConfig) -> Option<&str> {
    let rest = config.metadata.name.as_deref()?.strip_prefix(RENDERED_PREFIX)?;
    let mut owners = config.metadata.owner_references.iter().flatten();
    match owners.find(|owner| owner.kind == "MachineConfigPool") {
        Some(owner) => Some(&owner.name),
        None => rest.rsplit_once('-').map(|(pool, _)| pool),
    }
}

/// All names that are referred to.
fn referenced_names<'a>(
    pools: &'a [impl Borrow<MachineConfigPool>],
    nodes: &'a [impl Borrow<Node>],
    machine_config_nodes: &'a [impl Borrow<MachineConfigNode>],
) -> BTreeSet<&'a str> {
    let mut used = BTreeSet::new();
    for pool in pools {
        let pool = pool.borrow();
        let status = pool.status.as_ref().and_then(|status| status.configuration.as_ref());
        for configuration in pool.spec.configuration.iter().chain(status) {
            used.extend(configuration.name.as_deref());
        }
        let annotations = pool.metadata.annotations.as_ref();
        let rollback = [machinist::ROLLED_BACK_FROM, machinist::ROLLED_BACK_TO];
        used.extend(rollback.iter().filter_map(|key| annotations?.get(*key)).map(String::as_str));
    }
    for node in nodes {
        used.extend(names_on_node(node.borrow()));
    }
    for machine in machine_config_nodes {
        let machine = machine.borrow();
        used.insert(&machine.spec.config_version.desired);
        if let Some(version) = machine.status.as_ref().and_then(|s| s.config_version.as_ref()) {
            used.insert(&version.desired);
            used.extend(version.current.as_deref());
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn config(name: &str, minute: usize, owner: Option<&str>) -> MachineConfig {
        let mut metadata = json!({
            "name": name, "creationTimestamp": format!("2026-11-15T10:{minute:02}:00Z")});
        if let Some(owner) = owner {
            metadata["ownerReferences"] = json!([{"apiVersion": "machineconfiguration.openshift.io/v1",
                "kind": "MachineConfigPool", "name": owner, "uid": "u"}]);
        }
        typed(json!({"apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig", "metadata": metadata, "spec": {}}))
    }

    #[test]
    fn only_old_unreferenced_configs_are_removable() {
        let mut rendered: Vec<MachineConfig> =
            (0..20).map(|n| config(&format!("rendered-worker-{n:02}"), n, None)).collect();
        rendered.extend((0..12).map(|n| config(&format!("rendered-x-{n:02}"), n, Some("infra"))));
        rendered.extend((0..9).map(|n| config(&format!("rendered-my-pool-{n}"), n, None)));
        rendered.extend((0..30).map(|n| config(&format!("99-worker-{n}"), n, None)));
        let pools: Vec<MachineConfigPool> = vec![typed(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "worker"},
            "spec": {"configuration": {"name": "rendered-worker-00"}},
            "status": {"configuration": {"name": "rendered-worker-01"}}
        }))];
        let nodes: Vec<Node> = vec![typed(json!({"metadata": {"name": "n", "annotations": {
            CURRENT_CONFIG: "rendered-worker-02", DESIRED_CONFIG: "rendered-worker-03"}}}))];
        let machines: Vec<MachineConfigNode> = vec![typed(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigNode",
            "metadata": {"name": "n"},
            "spec": {"node": {"name": "n"}, "pool": {"name": "worker"},
                     "configVersion": {"desired": "rendered-worker-04"}},
            "status": {"configVersion": {"desired": "not-yet-set", "current": "rendered-worker-05"}}
        }))];
        let found = removable_configs(&pools, &nodes, &machines, &rendered, 10);
        assert_eq!(
            found,
            [
                "rendered-x-00",
                "rendered-x-01",
                "rendered-worker-06",
                "rendered-worker-07",
                "rendered-worker-08",
                "rendered-worker-09"
            ]
        );
        assert!(removable_configs(&pools, &nodes, &machines, &rendered, 100).is_empty());
    }

    #[test]
    fn a_machine_does_not_refer_to_configs_of_other_pools() {
        let pool = |name: &str| -> MachineConfigPool {
            typed(json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "metadata": {"name": name},
                "spec": {"configuration": {"name": format!("rendered-{name}-0")},
                    "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}}},
            }))
        };
        let pools = [pool("worker"), pool("master"), pool("my-pool")];
        let node: Node = typed(json!({"metadata": {
            "name": "n",
            "labels": {"node-role.kubernetes.io/my-pool": "", "node-role.kubernetes.io/worker": ""},
            "annotations": {
                CURRENT_CONFIG: "rendered-my-pool-1", DESIRED_CONFIG: "rendered-master-1",
                FIRST_PIVOT_CONFIG: "rendered-worker-1", machinist::REBOOT_PENDING: "99-worker",
            },
        }}));
        let found = referenced_configs(&pools, &[node]);
        let expected = [
            "rendered-master-0",
            "rendered-my-pool-0",
            "rendered-my-pool-1",
            "rendered-worker-0",
            "rendered-worker-1",
        ];
        assert_eq!(found, expected.map(str::to_owned).into());
    }
}
