//! Which pools there are: the declared ones, and the built-in ones.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use serde_json::json;

use super::BootstrapError;
use crate::api::names::object::{POOL_ARBITER, POOL_MASTER, POOL_WORKER};
use crate::api::names::{GROUP, label};
use crate::api::{ControllerConfig, MachineConfigPool, Nullable};

/// A pool, and the file that declares it.
pub type DeclaredPool = (MachineConfigPool, String);

/// Merges declared and built-in pools. If a pool is declared twice, an administrator's declaration
/// wins over the built-in one. Missing built-in pools are added.
///
/// # Errors
/// A pool is declared twice, and neither declaration is the built-in one.
pub fn choose_pools(
    declared: Vec<DeclaredPool>,
    controller_config: Option<&ControllerConfig>,
) -> Result<Vec<MachineConfigPool>, Vec<BootstrapError>> {
    let mut chosen: BTreeMap<String, DeclaredPool> = BTreeMap::new();
    let mut errors = Vec::new();
    for (pool, origin) in declared {
        let name = pool.name_any();
        match chosen.get(&name) {
            Some((first, _)) if *first == pool || is_built_in(&pool) => {}
            Some((first, at)) if !is_built_in(first) => {
                errors.push(BootstrapError::DuplicatePool {
                    name,
                    first: at.clone(),
                    second: origin,
                });
            }
            _ => {
                chosen.insert(name, (pool, origin));
            }
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let arbiter = controller_config.is_some_and(has_arbiters).then_some(POOL_ARBITER);
    for name in [POOL_MASTER, POOL_WORKER].into_iter().chain(arbiter) {
        if !chosen.contains_key(name) {
            chosen.insert(name.to_owned(), (built_in_pool(name), String::new()));
        }
    }
    Ok(chosen.into_values().map(|(pool, _)| pool).collect())
}

/// Whether a cluster has arbiter machines.
fn has_arbiters(controller_config: &ControllerConfig) -> bool {
    let Nullable::Set(infra) = &controller_config.spec.infra else { return false };
    let infra = serde_json::to_value(infra).unwrap_or_default();
    infra.pointer("/status/controlPlaneTopology").is_some_and(|it| it == "HighlyAvailableArbiter")
}

/// A built-in pool.
#[must_use]
pub fn built_in_pool(name: &str) -> MachineConfigPool {
    let select = |key: &str, value: &str| json!({"matchLabels": {key: value}});
    let pool = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "MachineConfigPool",
        "metadata": {
            "name": name,
            "labels": {label::MCO_BUILT_IN: "", format!("{}{name}", label::POOL_PREFIX): ""},
        },
        "spec": {
            "machineConfigSelector": select(label::ROLE, name),
            "nodeSelector": select(&format!("node-role.kubernetes.io/{name}"), ""),
        },
    });
    serde_json::from_value(pool).unwrap_or_default()
}

/// Whether a pool equals the built-in one.
pub(super) fn is_built_in(pool: &MachineConfigPool) -> bool {
    let name = pool.name_any();
    let mut spec = pool.spec.clone();
    // The installer's manifests set this, but it has no meaning.
    spec.configuration = None;
    [POOL_MASTER, POOL_WORKER, POOL_ARBITER].contains(&name.as_str())
        && pool.labels().contains_key(label::MCO_BUILT_IN)
        && spec == built_in_pool(&name).spec
}
