//! Which pool a machine belongs to. A pool selects machines by labels, by [names](NodeNamePatterns), or by both, and
//! then both must match. A machine may match several pools. Its *primary* pool configures it: a custom pool takes
//! precedence over `worker`, and `master` over a custom pool. Two custom pools are an error, however they select: which
//! one comes first would depend on how a pattern is written.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;

use crate::api::names::annotation::machinist::NODE_NAMES;
use crate::api::names::object::{POOL_MASTER, POOL_WORKER};
use crate::api::selector::{self, SelectorError};
use crate::api::{MachineConfigPool, NodeNamePatterns, NodeNamesError};

use crate::node::NodeView;

/// Why a machine's pool cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// It matches more than one custom pool.
    #[error("node {node} belongs to {} custom roles, cannot proceed with this Node (pools {}; remove the label of all but one, or the name from {NODE_NAMES} of the others)", .pools.len(), .pools.join(", "))]
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
    /// The names of a pool cannot be read.
    #[error("MachineConfigPool {pool}: metadata.annotations: {NODE_NAMES}: {source}")]
    InvalidNodeNames {
        /// The pool.
        pool: String,
        /// What is wrong with them.
        source: NodeNamesError,
    },
}

impl MembershipError {
    /// Whether it keeps machines out of a pool.
    #[must_use]
    pub fn concerns(&self, name: &str) -> bool {
        match self {
            Self::MultipleCustomPools { pools, .. } => pools.iter().any(|pool| pool == name),
            Self::InvalidSelector { pool, .. } | Self::InvalidNodeNames { pool, .. } => {
                pool == name
            }
        }
    }
}

/// The pools of a machine, the primary one first. `None` if no pool selects it.
pub type NodePools<'a> = Vec<&'a MachineConfigPool>;

fn name_of(pool: &MachineConfigPool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

/// Whether a pool selects a machine. Without labels and names it selects none; an empty selector says nothing.
fn selects(pool: &MachineConfigPool, node: &Node) -> Result<bool, MembershipError> {
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let pool_name = || name_of(pool).to_owned();
    let patterns = NodeNamePatterns::of_pool(pool)
        .map_err(|source| MembershipError::InvalidNodeNames { pool: pool_name(), source })?;
    let selector = pool.spec.node_selector.as_ref().filter(|s| !selector::is_empty(s));
    let by_labels = selector.map(|selector| selector::matches(selector, labels)).transpose();
    let by_labels = by_labels
        .map_err(|source| MembershipError::InvalidSelector { pool: pool_name(), source })?;
    let by_name = patterns.map(|patterns| patterns.matches(NodeView(node).name()));
    Ok(match (by_labels, by_name) {
        (None, None) => false,
        (by_labels, by_name) => by_labels.unwrap_or(true) && by_name.unwrap_or(true),
    })
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
    let (mut master, mut worker, mut custom) = (None, None, Vec::new());
    for pool in pools {
        let pool = pool.borrow();
        match name_of(pool) {
            _ if !selects(pool, node)? => {}
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
        let texts = self.errors.iter().filter(|it| it.concerns(name)).map(ToString::to_string);
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
    pools.iter().map(Borrow::borrow).any(|pool| {
        !matches!(name_of(pool), POOL_MASTER | POOL_WORKER)
            && selects(pool, node).unwrap_or_default()
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
    fn pools_select_by_labels_by_names_or_by_both() {
        let with = |name: &str, names: Option<&str>, role: Option<&str>| -> MachineConfigPool {
            let labels = role.map(|role| json!({format!("node-role.kubernetes.io/{role}"): ""}));
            serde_json::from_value(json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "metadata": {"name": name, "annotations": names.map(|names| json!({NODE_NAMES: names}))},
                "spec": {"nodeSelector": labels.map(|labels| json!({"matchLabels": labels}))},
            }))
            .unwrap()
        };
        let node = |name: &str, role: &str| -> Node {
            let labels = json!({format!("node-role.kubernetes.io/{role}"): ""});
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
        };
        let (worker, master) = (pool("worker"), pool("master"));
        let edge = with("edge", Some("edge-*"), None);
        let rack = with("rack", Some("*-7"), None);
        let near = with("near", Some("edge-*"), Some("worker"));
        let wrong = with("wrong", Some("Edge-*"), None);
        let none = with("none", None, None);
        for (pools, name, role, expected) in [
            (vec![&worker, &edge], "edge-1", "worker", Ok(vec!["edge", "worker"])),
            (vec![&worker, &edge], "core-1", "worker", Ok(vec!["worker"])),
            (vec![&worker, &edge], "edge-1", "other", Ok(vec!["edge"])),
            // No name takes a machine from the control plane.
            (vec![&master, &worker, &edge], "edge-1", "master", Ok(vec!["master"])),
            // Both must match.
            (vec![&near], "edge-1", "worker", Ok(vec!["near"])),
            (vec![&near], "edge-1", "other", Ok(vec![])),
            (vec![&near], "core-1", "worker", Ok(vec![])),
            (vec![&none], "edge-1", "worker", Ok(vec![])),
            // Two custom pools are an error, and so is a pattern that cannot be read: it may be about any machine.
            (vec![&edge, &rack], "edge-7", "worker", Err("belongs to 2 custom roles")),
            (vec![&edge, &rack], "core-7", "worker", Ok(vec!["rack"])),
            (
                vec![&worker, &wrong],
                "core-1",
                "worker",
                Err("machinist.dev/node-names: \"Edge-*\""),
            ),
        ] {
            let node = node(name, role);
            let found = pools_of(&node, &pools);
            match (&found, &expected) {
                (Ok(found), Ok(expected)) => {
                    let names: Vec<&str> = found.iter().map(|pool| name_of(pool)).collect();
                    assert_eq!(names, *expected, "{name} {role}");
                }
                (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
                _ => panic!("{name} {role}: {found:?}"),
            }
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
