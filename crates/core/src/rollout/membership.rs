//! Which pool a machine belongs to. A machine may match several pools. Its *primary* pool configures
//! it: a custom pool takes precedence over `worker`, and `master` over a custom pool. Two custom
//! pools are an error.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;

use crate::api::MachineConfigPool;
use crate::api::names::object::{POOL_MASTER, POOL_WORKER};
use crate::api::selector::{self, SelectorError};

use crate::node::NodeView;

/// Why a machine's pool cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// It matches more than one custom pool.
    #[error("node {node} belongs to {} custom roles, cannot proceed with this Node (pools {}; remove the label of all but one)", .pools.len(), .pools.join(", "))]
    MultipleCustomPools {
        /// The machine.
        node: String,
        /// The custom pools.
        pools: Vec<String>,
    },
    /// A pool's selector is invalid.
    #[error("MachineConfigPool {pool}: spec.nodeSelector: invalid label selector: {source}")]
    InvalidSelector {
        /// The pool.
        pool: String,
        /// What is wrong with it.
        source: SelectorError,
    },
}

/// The pools of a machine, the primary one first. `None` if no pool selects it.
pub type NodePools<'a> = Vec<&'a MachineConfigPool>;

fn name_of(pool: &MachineConfigPool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

/// The pools of a machine, the primary one first.
pub fn pools_of<'a>(
    node: &Node,
    pools: &'a [impl Borrow<MachineConfigPool>],
) -> Result<NodePools<'a>, MembershipError> {
    let view = NodeView(node);
    if view.is_windows() {
        return Ok(Vec::new());
    }
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let (mut master, mut worker, mut custom) = (None, None, Vec::new());
    for pool in pools {
        let pool = pool.borrow();
        // A missing or empty selector matches nothing.
        let Some(selector) = pool.spec.node_selector.as_ref().filter(|s| !selector::is_empty(s))
        else {
            continue;
        };
        let matches = selector::matches(selector, labels).map_err(|source| {
            MembershipError::InvalidSelector { pool: name_of(pool).to_owned(), source }
        })?;
        match name_of(pool) {
            _ if !matches => {}
            POOL_MASTER => master = Some(pool),
            POOL_WORKER => worker = Some(pool),
            _ => custom.push(pool),
        }
    }
    if custom.len() > 1 {
        let pools = custom.iter().map(|pool| name_of(pool).to_owned()).collect();
        return Err(MembershipError::MultipleCustomPools { node: view.name().to_owned(), pools });
    }
    Ok(match (master, custom.pop()) {
        (Some(master), Some(_)) => [Some(master), worker].into_iter().flatten().collect(),
        (Some(master), None) => vec![master],
        (None, custom) => [custom, worker].into_iter().flatten().collect(),
    })
}

/// All machines, grouped by pool.
#[derive(Debug, Default)]
pub struct PoolAssignment<'a> {
    /// The machines of each pool, by pool name, in input order.
    pub members: BTreeMap<String, Vec<&'a Node>>,
    /// Errors of machines whose pool cannot be determined.
    pub errors: Vec<MembershipError>,
    /// Machines that a custom pool selects but that belong to `master`.
    pub kept_by_master: Vec<&'a str>,
    /// Machines with a daemon that no pool selects: nobody gives them a config.
    pub without_pool: Vec<&'a Node>,
}

impl PoolAssignment<'_> {
    /// What keeps machines out of a pool, each problem once: an invalid selector is an error for every machine.
    #[must_use]
    pub fn problems_of(&self, name: &str) -> Vec<String> {
        let concerns = |error: &&MembershipError| match error {
            MembershipError::MultipleCustomPools { pools, .. } => {
                pools.iter().any(|pool| pool == name)
            }
            MembershipError::InvalidSelector { pool, .. } => pool == name,
        };
        let texts = self.errors.iter().filter(concerns).map(ToString::to_string);
        texts.collect::<BTreeSet<String>>().into_iter().collect()
    }
}

/// The message about a machine that no pool selects, with the remedy.
#[must_use]
pub fn without_pool_message(node: &Node, pools: &[impl Borrow<MachineConfigPool>]) -> String {
    let name = NodeView(node).name();
    let pools: Vec<&str> = pools.iter().map(|pool| name_of(pool.borrow())).collect();
    let pools = if pools.is_empty() { "there are none".to_owned() } else { pools.join(", ") };
    format!(
        "node {name} is in no pool: no MachineConfigPool selects its labels, so it keeps the config that it has; label it for one of the pools ({pools}): machinist label node {name} node-role.kubernetes.io/POOL="
    )
}

/// Groups all machines by pool.
#[must_use]
pub fn assign_nodes<'a>(
    pools: &[impl Borrow<MachineConfigPool>],
    nodes: &'a [impl Borrow<Node>],
) -> PoolAssignment<'a> {
    let mut assignment = PoolAssignment::default();
    for node in nodes {
        let node = node.borrow();
        match pools_of(node, pools) {
            Ok(found) => {
                let Some(first) = found.first() else {
                    let view = NodeView(node);
                    // Without a daemon it is not ours to manage.
                    if !view.is_windows() && !view.current_config().is_empty() {
                        assignment.without_pool.push(node);
                    }
                    continue;
                };
                assignment.members.entry(name_of(first).to_owned()).or_default().push(node);
                if name_of(first) == POOL_MASTER && wanted_by_custom(node, pools) {
                    assignment.kept_by_master.push(NodeView(node).name());
                }
            }
            Err(error) => assignment.errors.push(error),
        }
    }
    assignment
}

fn wanted_by_custom(node: &Node, pools: &[impl Borrow<MachineConfigPool>]) -> bool {
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    pools.iter().map(Borrow::borrow).any(|pool| {
        let selector = pool.spec.node_selector.as_ref().filter(|s| !selector::is_empty(s));
        !matches!(name_of(pool), POOL_MASTER | POOL_WORKER)
            && selector.is_some_and(|selector| selector::matches(selector, labels) == Ok(true))
    })
}

/// The machines whose primary pool this is, in input order, and the errors of machines whose pool
/// cannot be determined.
#[must_use]
pub fn nodes_of<'a>(
    pool: &MachineConfigPool,
    pools: &[MachineConfigPool],
    nodes: &'a [Node],
) -> (Vec<&'a Node>, Vec<MembershipError>) {
    let mut members = Vec::new();
    let mut errors = Vec::new();
    for node in nodes {
        match pools_of(node, pools) {
            Ok(found) => {
                if found.first().is_some_and(|first| name_of(first) == name_of(pool)) {
                    members.push(node);
                }
            }
            Err(error) => errors.push(error),
        }
    }
    (members, errors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool(name: &str) -> MachineConfigPool {
        let label = format!("node-role.kubernetes.io/{name}");
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": name}, "spec": {"nodeSelector": {"matchLabels": {label: ""}}}
        }))
        .unwrap()
    }

    #[test]
    fn a_machine_with_a_daemon_and_without_a_pool_is_named() {
        let node = |name: &str, labels: &serde_json::Value, config: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels,
                "annotations": {"machineconfiguration.openshift.io/currentConfig": config}}}))
            .unwrap()
        };
        let pools = ["worker", "infra"].map(pool);
        let nodes = [
            node("a", &json!({"node-role.kubernetes.io/worker": ""}), "x"),
            node("lost", &json!({"node-role.kubernetes.io/gone": ""}), "x"),
            node("foreign", &json!({}), ""),
            node("windows", &json!({"kubernetes.io/os": "windows"}), "x"),
        ];
        let found = assign_nodes(&pools, &nodes).without_pool;
        let names: Vec<&str> = found.iter().map(|node| NodeView(node).name()).collect();
        assert_eq!(names, ["lost"]);
        let message = without_pool_message(found[0], &pools);
        assert!(
            message.starts_with("node lost is in no pool: ") && message.contains("(worker, infra)")
        );
    }

    #[test]
    fn each_problem_is_that_of_the_pools_it_is_about() {
        let error = |node: &str| MembershipError::MultipleCustomPools {
            node: node.to_owned(),
            pools: vec!["infra".to_owned(), "gpu".to_owned()],
        };
        let errors = vec![error("a"), error("a"), error("b")];
        let assignment = PoolAssignment { errors, ..PoolAssignment::default() };
        for (pool, expected) in [("infra", 2), ("gpu", 2), ("worker", 0)] {
            assert_eq!(assignment.problems_of(pool).len(), expected, "{pool}");
        }
    }

    #[test]
    fn the_primary_pool() {
        let pools = ["worker", "master", "infra", "infra2"].map(pool);
        let cases: [(&[&str], Option<&[&str]>); 8] = [
            (&[], Some(&[])),
            (&["worker"], Some(&["worker"])),
            (&["worker", "infra"], Some(&["infra", "worker"])),
            (&["infra"], Some(&["infra"])),
            (&["master"], Some(&["master"])),
            (&["master", "worker"], Some(&["master"])),
            (&["master", "infra", "worker"], Some(&["master", "worker"])),
            (&["worker", "infra", "infra2"], None),
        ];
        for (roles, expected) in cases {
            let labels: BTreeMap<String, &str> =
                roles.iter().map(|role| (format!("node-role.kubernetes.io/{role}"), "")).collect();
            let node: Node =
                serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}}))
                    .unwrap();
            let found = pools_of(&node, &pools).ok();
            let names: Option<Vec<&str>> =
                found.as_ref().map(|pools| pools.iter().map(|pool| name_of(pool)).collect());
            assert_eq!(names.as_deref(), expected, "{roles:?}");
        }
    }
}
