//! Decides which config a pool can roll back to.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::annotation::machinist;
use crate::api::{MachineConfig, MachineConfigPool};
use crate::node::NodeView;
use crate::os::abilities::{HostAbilities, UserRules};
use crate::reconcile_check::{ValidationOverrides, check_reconcilable};
use crate::render::reconcile::PoolRollback;
use crate::render::{ImageSources, render};
use crate::rollout::{RolloutPolicy, pool_of};

/// A rendered config of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedRevision {
    /// Its name.
    pub name: String,
    /// When it was rendered.
    pub created: Option<Time>,
    /// The machines of the pool that have it.
    pub machines: Vec<String>,
}

/// Why a pool cannot roll back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RollbackError {
    /// The pool has no config yet.
    #[error("MachineConfigPool {pool} has no rendered config yet: there is nothing to roll back")]
    NothingRendered {
        /// The pool.
        pool: String,
    },
    /// The config does not belong to the pool.
    #[error("{wanted} is not a rendered config of MachineConfigPool {pool}")]
    NotOfThisPool {
        /// The pool.
        pool: String,
        /// The requested config.
        wanted: String,
    },
    /// The pool has no earlier config.
    #[error("MachineConfigPool {pool} has no rendered config older than {current}")]
    NoEarlierConfig {
        /// The pool.
        pool: String,
        /// The pool's config.
        current: String,
    },
    /// The pool already has the config.
    #[error("MachineConfigPool {pool} already has {current}")]
    AlreadyCurrent {
        /// The pool.
        pool: String,
        /// The pool's config.
        current: String,
    },
    /// The pool would have this config without a rollback.
    #[error(
        "the MachineConfigs of MachineConfigPool {pool} render to {config}: end the rollback with `machinist rollback {pool} --undo`"
    )]
    UndoesRollback {
        /// The pool.
        pool: String,
        /// The config.
        config: String,
    },
    /// The config is marked as bad.
    #[error(
        "{config} is marked as bad: remove it from the annotation machinist.dev/bad-configs of MachineConfigPool {pool} first"
    )]
    BadConfig {
        /// The pool.
        pool: String,
        /// The config.
        config: String,
    },
    /// Machines could not apply it in place.
    #[error("{} cannot change from {from} to {to} in place: {reason}", .machines.join(", "))]
    Refused {
        /// The machines.
        machines: Vec<String>,
        /// The config that they have.
        from: String,
        /// The config that they would get.
        to: String,
        /// The reason.
        reason: String,
    },
}

/// The rendered configs of a pool, newest first.
#[must_use]
pub fn rendered_revisions(
    pool: &MachineConfigPool,
    members: &[&Node],
    configs: &[MachineConfig],
) -> Vec<RenderedRevision> {
    let name = pool.metadata.name.as_deref();
    let mut own: Vec<RenderedRevision> = configs
        .iter()
        .filter(|config| pool_of(config).is_some() && pool_of(config) == name)
        .map(|config| {
            let name = config.metadata.name.clone().unwrap_or_default();
            let views = members.iter().map(|node| NodeView(node));
            let has_it = views.filter(|view| view.current_config() == name);
            let machines = has_it.map(|view| view.name().to_owned()).collect();
            RenderedRevision { name, created: config.metadata.creation_timestamp.clone(), machines }
        })
        .collect();
    own.sort_by_key(|one| Reverse(age(one)));
    own
}

fn age(one: &RenderedRevision) -> (Option<Time>, String) {
    (one.created.clone(), one.name.clone())
}

/// The annotations to write for a pool to roll back: to the given config, or else to the previous
/// one.
pub fn plan_rollback(
    pool: &MachineConfigPool,
    members: &[&Node],
    configs: &[MachineConfig],
    system: ImageSources<'_>,
    wanted: Option<&str>,
) -> Result<PoolRollback, RollbackError> {
    let name = pool.metadata.name.clone().unwrap_or_default();
    let current = pool.target_config().to_owned();
    if current.is_empty() {
        return Err(RollbackError::NothingRendered { pool: name });
    }
    let known = rendered_revisions(pool, members, configs);
    // An invalid policy is reported elsewhere; only the bad configs matter here.
    let bad =
        RolloutPolicy::from_annotations(pool).map(|policy| policy.bad_configs).unwrap_or_default();
    let to = match wanted {
        Some(wanted) if !known.iter().any(|one| one.name == wanted) => {
            return Err(RollbackError::NotOfThisPool { pool: name, wanted: wanted.to_owned() });
        }
        Some(wanted) => wanted.to_owned(),
        None => previous_config(pool, &known, &current, &bad).ok_or_else(|| {
            RollbackError::NoEarlierConfig { pool: name.clone(), current: current.clone() }
        })?,
    };
    if to == current {
        return Err(RollbackError::AlreadyCurrent { pool: name, current });
    }
    if bad.contains(&to) {
        return Err(RollbackError::BadConfig { pool: name, config: to });
    }
    let from = render(pool, configs, system).map(|rendered| rendered.name);
    // If the MachineConfigs cannot be rendered, the pool stays where it is.
    let from = from.unwrap_or_else(|_| {
        PoolRollback::from_annotations(pool).map_or(current, |before| before.from)
    });
    if from == to {
        return Err(RollbackError::UndoesRollback { pool: name, config: to });
    }
    check_machines(members, configs, &to)?;
    Ok(PoolRollback { from, to })
}

/// The previous config of a pool: the one of its last completed rollout, or else the newest one
/// that is older than the current one.
fn previous_config(
    pool: &MachineConfigPool,
    known: &[RenderedRevision],
    current: &str,
    bad: &BTreeSet<String>,
) -> Option<String> {
    let status = pool.status.as_ref().and_then(|status| status.configuration.as_ref());
    let last = status.and_then(|configuration| configuration.name.as_deref());
    let rolled_from = PoolRollback::from_annotations(pool).map(|before| before.from);
    let is_choice = |one: &&RenderedRevision| {
        one.name != current && !bad.contains(&one.name) && Some(&one.name) != rolled_from.as_ref()
    };
    let by_status = known.iter().find(|one| is_choice(one) && Some(one.name.as_str()) == last);
    let present = known.iter().find(|one| one.name == current).map(age);
    let is_older =
        |one: &&RenderedRevision| present.as_ref().is_none_or(|present| age(one) < *present);
    let mut older = known.iter().filter(|one| is_choice(one) && is_older(one));
    by_status.or_else(|| older.next()).map(|one| one.name.clone())
}

/// Checks whether each machine can apply the config in place, from the config that it has.
fn check_machines(
    members: &[&Node],
    configs: &[MachineConfig],
    to: &str,
) -> Result<(), RollbackError> {
    let find = |name: &str| configs.iter().find(|mc| mc.metadata.name.as_deref() == Some(name));
    let Some(new) = find(to) else { return Ok(()) };
    let overrides = ValidationOverrides {
        any_user: members.iter().all(|node| allows_any_user(NodeView(node))),
        ..ValidationOverrides::default()
    };
    let mut machines: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for view in members.iter().map(|node| NodeView(node)) {
        machines.entry(view.current_config()).or_default().push(view.name().to_owned());
    }
    for (from, machines) in machines.into_iter().filter(|(from, _)| *from != to) {
        // A deleted config cannot be compared here. The machine's daemon has a copy and checks it.
        let Some(old) = find(from) else { continue };
        if let Err(refusal) = check_reconcilable(old, new, overrides) {
            let (from, to) = (from.to_owned(), to.to_owned());
            return Err(RollbackError::Refused { machines, from, to, reason: refusal.reason() });
        }
    }
    Ok(())
}

/// Whether the host of a machine takes any user of a config.
fn allows_any_user(node: NodeView<'_>) -> bool {
    let report = node.annotation(machinist::HOST).and_then(HostAbilities::parse);
    report.is_some_and(|host| host.users == UserRules::Any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::annotation::{CURRENT_CONFIG, machinist};
    use serde_json::{Value, json};

    fn config(name: &str, minute: u32, directories: &Value) -> MachineConfig {
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name, "creationTimestamp": format!("2026-11-15T10:{minute:02}:00Z")},
            "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"directories": directories}}}
        }))
        .unwrap()
    }

    fn node(name: &str, current: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {CURRENT_CONFIG: current}}
        }))
        .unwrap()
    }

    fn pool(spec: &str, status: &str, annotations: &Value) -> MachineConfigPool {
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "worker", "annotations": annotations},
            "spec": {"configuration": {"name": spec}},
            "status": {"configuration": {"name": status}},
        }))
        .unwrap()
    }

    /// Four configs: a, b, c by age, and d, from which machines cannot change to the others in
    /// place.
    fn rendered_configs() -> Vec<MachineConfig> {
        let none = json!([]);
        vec![
            config("rendered-worker-b", 2, &none),
            config("rendered-worker-a", 1, &none),
            config("rendered-worker-c", 3, &none),
            config("rendered-worker-d", 4, &json!([{"path": "/srv"}])),
            config("rendered-infra-x", 2, &none),
            config("99-worker", 2, &none),
        ]
    }

    #[test]
    fn a_rollback_goes_to_the_previous_or_the_given_config() {
        let rolled = json!({
            machinist::ROLLED_BACK_FROM: "rendered-worker-c", machinist::ROLLED_BACK_TO: "rendered-worker-b",
        });
        let bad = json!({machinist::BAD_CONFIGS: "rendered-worker-b"});
        let none = json!({});
        type Case<'a> = (&'a str, &'a str, &'a Value, Option<&'a str>, &'a str, &'a str);
        let cases: [Case<'_>; 15] = [
            // During a rollout: the config of the last completed rollout.
            ("c", "a", &none, None, "c", "a"),
            // After it: the next older one.
            ("c", "c", &none, None, "c", "b"),
            ("b", "b", &none, None, "b", "a"),
            ("a", "a", &none, None, "", "no rendered config older than rendered-worker-a"),
            // A second rollback keeps what the MachineConfigs render to.
            ("b", "c", &rolled, None, "c", "a"),
            ("b", "b", &rolled, None, "c", "a"),
            // A bad config is never a target.
            ("c", "b", &bad, None, "c", "a"),
            ("c", "c", &bad, Some("b"), "", "bad-configs"),
            ("c", "c", &none, Some("a"), "c", "a"),
            ("c", "c", &none, Some("c"), "", "already has rendered-worker-c"),
            ("c", "c", &none, Some("z"), "", "is not a rendered config of"),
            ("b", "b", &rolled, Some("c"), "", "--undo"),
            ("c", "c", &none, Some("infra"), "", "is not a rendered config of"),
            ("d", "d", &none, Some("a"), "", "m1 cannot change from rendered-worker-d"),
            // The current config was deleted: the newest one that exists.
            ("gone", "gone", &none, None, "gone", "d"),
        ];
        for (spec, status, annotations, wanted, from, expected) in cases {
            let full = |short: &str| match short {
                "infra" => "rendered-infra-x".to_owned(),
                short => format!("rendered-worker-{short}"),
            };
            let pool = pool(&full(spec), &full(status), annotations);
            let nodes = [node("m1", &full(spec))];
            let members: Vec<&Node> = nodes.iter().collect();
            let wanted = wanted.map(full);
            let found = plan_rollback(
                &pool,
                &members,
                &rendered_configs(),
                ImageSources::default(),
                wanted.as_deref(),
            );
            match found {
                Ok(found) => assert_eq!(
                    (found.from, found.to),
                    (full(from), full(expected)),
                    "{spec} {status} {annotations}"
                ),
                Err(refusal) => {
                    assert_eq!(from, "", "{refusal}");
                    assert!(refusal.to_string().contains(expected), "{refusal}");
                }
            }
        }
    }

    #[test]
    fn revisions_list_their_machines_newest_first() {
        let nodes = [node("m1", "rendered-worker-a"), node("m2", "rendered-worker-c")];
        let members: Vec<&Node> = nodes.iter().collect();
        let known = rendered_revisions(
            &pool("rendered-worker-c", "", &json!({})),
            &members,
            &rendered_configs(),
        );
        let shown: Vec<String> =
            known.iter().map(|one| format!("{} {}", one.name, one.machines.join(","))).collect();
        let expected = ["d ", "c m2", "b ", "a m1"].map(|text| format!("rendered-worker-{text}"));
        assert_eq!(shown, expected);
    }
}
