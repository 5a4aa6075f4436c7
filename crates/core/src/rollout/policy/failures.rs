//! Bad configs: too many machines failed on them.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::MachineConfigPool;
use crate::api::names::annotation::machinist;

use super::{RolloutPolicy, annotation_of};
use crate::node::NodeView;

/// The configs that no machine gets.
pub(super) fn bad_configs(pool: &MachineConfigPool) -> BTreeSet<String> {
    let list = annotation_of(pool, machinist::BAD_CONFIGS).unwrap_or_default();
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// A bad config: the machines that failed on it, and the annotation to write.
pub(super) struct BadConfigRecord {
    pub(super) failed: Vec<String>,
    pub(super) pool_annotations: BTreeMap<String, Option<String>>,
}

/// Whether the target is bad: it is in the list, or too many machines have failed on it.
pub(super) fn evaluate_failures(
    pool: &MachineConfigPool,
    policy: &RolloutPolicy,
    views: &[NodeView<'_>],
    target: &str,
) -> Option<BadConfigRecord> {
    let failed: Vec<String> = views
        .iter()
        .filter(|view| view.desired_config() == target && view.is_degraded())
        .filter(|view| !view.has_stale_failure())
        .map(|view| view.name().to_owned())
        .collect();
    if policy.bad_configs.contains(target) {
        return Some(BadConfigRecord { failed, pool_annotations: BTreeMap::new() });
    }
    // An administrator removed the config from the list. Earlier failures do not count then, or the
    // config would return to the list at once.
    let forgiven = forgiven_machines(pool, target);
    let new = failed.iter().filter(|name| !forgiven.contains(name.as_str())).count();
    if target.is_empty() || policy.max_failures.is_none_or(|max| new <= max) {
        return None;
    }
    let mut bad = policy.bad_configs.clone();
    bad.insert(target.to_owned());
    let bad: Vec<String> = bad.into_iter().collect();
    let memory = BTreeMap::from([
        (machinist::BAD_CONFIGS.to_owned(), Some(bad.join(","))),
        (machinist::FAILED_MACHINES.to_owned(), Some(format!("{target} {}", failed.join(",")))),
    ]);
    Some(BadConfigRecord { failed, pool_annotations: memory })
}

fn forgiven_machines<'a>(pool: &'a MachineConfigPool, target: &str) -> BTreeSet<&'a str> {
    let memory = annotation_of(pool, machinist::FAILED_MACHINES).unwrap_or_default();
    match memory.split_once(' ') {
        Some((config, machines)) if config == target => machines.split(',').collect(),
        _ => BTreeSet::new(),
    }
}
