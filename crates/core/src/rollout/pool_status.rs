//! The status of a pool: counts and conditions, with MCO's reasons and messages.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::condition::{node as machine_config_node, pool as condition};
use crate::api::{
    CertExpiry, Condition, ControllerConfig, MachineConfigNode, MachineConfigPool,
    MachineConfigPoolStatus, PoolSynchronizerStatus, set_condition,
};

use super::image_layering::PoolLayering;
use super::image_status::{image_degradation, image_progress};
use super::pool_conditions::pool_mode;
use crate::node::{MAX_REASON_CHARS, MachineMode, NodeView, excerpt};

/// The status of a pool without a layered image.
#[must_use]
pub fn pool_status(
    pool: &MachineConfigPool,
    nodes: &[&Node],
    machine_config_nodes: &[&MachineConfigNode],
    controller_config: Option<&ControllerConfig>,
    now: &Time,
) -> MachineConfigPoolStatus {
    let layering = PoolLayering::default();
    pool_status_for(&layering, pool, nodes, machine_config_nodes, controller_config, now)
}

/// The status of a pool that may have a layered image.
#[must_use]
pub fn pool_status_for(
    layering: &PoolLayering<'_>,
    pool: &MachineConfigPool,
    nodes: &[&Node],
    machine_config_nodes: &[&MachineConfigNode],
    controller_config: Option<&ControllerConfig>,
    now: &Time,
) -> MachineConfigPoolStatus {
    let goal = layering.target(pool);
    let views: Vec<NodeView<'_>> = nodes.iter().map(|node| NodeView(node)).collect();
    let count = |test: &dyn Fn(&NodeView<'_>) -> bool| {
        i32::try_from(views.iter().filter(|view| test(view)).count()).unwrap_or(i32::MAX)
    };
    let machines = count(&|_| true);
    let updated = count(&|view| view.is_updated_to(goal));
    let ready = count(&|view| view.is_updated_to(goal) && view.not_ready().is_none());
    let unavailable = count(&|view| view.is_unavailable());
    let degraded = count(&|view| view.is_degraded());
    let before = pool.status.clone().unwrap_or_default();
    let mut status = MachineConfigPoolStatus {
        observed_generation: pool.metadata.generation,
        machine_count: Some(machines),
        updated_machine_count: Some(updated),
        ready_machine_count: Some(ready),
        unavailable_machine_count: Some(unavailable),
        degraded_machine_count: Some(degraded),
        cert_expirys: Some(cert_expirys(controller_config)),
        pool_synchronizers_status: Some(vec![PoolSynchronizerStatus {
            pool_synchronizer_type: "PinnedImageSets".to_owned(),
            machine_count: i64::from(machines),
            updated_machine_count: pinned_machine_count(&views, machine_config_nodes),
            ready_machine_count: i64::from(ready),
            unavailable_machine_count: i64::from(unavailable),
            available_machine_count: i64::from(machines - unavailable),
            ..PoolSynchronizerStatus::default()
        }]),
        configuration: before.configuration.clone(),
        conditions: before.conditions.clone(),
        ..before
    };
    let all_updated =
        updated == machines && ready == machines && unavailable == 0 && !layering.is_building();
    if all_updated {
        status.configuration.clone_from(&pool.spec.configuration);
    }
    let mut conditions = PoolConditions { list: status.conditions.take().unwrap_or_default(), now };
    set_progress(&mut conditions, layering, pool, &views, all_updated);
    image_progress(&mut conditions, layering, pool, all_updated);
    set_degradation(&mut conditions, layering, &views, machine_config_nodes, degraded);
    status.conditions = Some(conditions.list);
    status
}

fn cert_expirys(controller_config: Option<&ControllerConfig>) -> Vec<CertExpiry> {
    let status = controller_config.and_then(|cc| cc.status.as_ref());
    let certificates = status.and_then(|status| status.controller_certificates.as_ref());
    certificates
        .into_iter()
        .flatten()
        .filter(|certificate| certificate.bundle_file == "KubeAPIServerServingCAData")
        .map(|certificate| CertExpiry {
            bundle: certificate.bundle_file.clone(),
            subject: certificate.subject.clone(),
            expiry: certificate.not_after.clone(),
            ..CertExpiry::default()
        })
        .collect()
}

/// How many machines have all their pinned images.
fn pinned_machine_count(
    views: &[NodeView<'_>],
    machine_config_nodes: &[&MachineConfigNode],
) -> i64 {
    let members: HashSet<&str> = views.iter().map(|view| view.name()).collect();
    let count = machine_config_nodes
        .iter()
        .filter(|node| members.contains(node.metadata.name.as_deref().unwrap_or_default()))
        .filter_map(|node| node.status.as_ref())
        .filter(|status| status.conditions.as_ref().is_some_and(|list| !list.is_empty()))
        .filter(|status| {
            status.pinned_image_sets.iter().flatten().all(|set| {
                let desired = set.desired_generation.unwrap_or_default();
                desired > 0 && set.current_generation == Some(desired)
            })
        })
        .count();
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn set_progress(
    conditions: &mut PoolConditions<'_>,
    layering: &PoolLayering<'_>,
    pool: &MachineConfigPool,
    views: &[NodeView<'_>],
    all_updated: bool,
) {
    let config = pool.target_config();
    let target = match layering.pull_spec() {
        "" => config.to_owned(),
        image => format!("{config} / Image {image}"),
    };
    if all_updated {
        let message = format!("All nodes are updated with MachineConfig {target}");
        conditions.set(condition::UPDATED, true, "", &message);
        conditions.set(condition::UPDATING, false, "", "");
        return;
    }
    conditions.set(condition::UPDATED, false, "", "");
    if pool.spec.paused == Some(true) {
        let message = format!("Pool is paused; will not update to MachineConfig {target}");
        conditions.set(condition::UPDATING, false, "", &message);
    } else if is_only_observed(pool, views) {
        let message = format!("Pool is observed; will not update to MachineConfig {target}");
        conditions.set(condition::UPDATING, false, "", &message);
    } else {
        let restarts = reboots_pending_message(views, config);
        let message = format!("All nodes are updating to MachineConfig {target}{restarts}");
        conditions.set(condition::UPDATING, true, "", &message);
    }
}

/// Whether no machine of the pool may be changed.
fn is_only_observed(pool: &MachineConfigPool, views: &[NodeView<'_>]) -> bool {
    let mode = pool_mode(pool);
    let is_observed =
        |view: &NodeView<'_>| MachineMode::of_machine(*view, mode) == MachineMode::Observe;
    !views.is_empty() && views.iter().all(is_observed)
}

/// The machines that wait for the approval of a reboot, as text.
fn reboots_pending_message(views: &[NodeView<'_>], target: &str) -> String {
    const SHOWN: usize = 10;
    let waits = |view: &&NodeView<'_>| view.desired_config() == target && view.awaits_reboot();
    let names: Vec<&str> = views.iter().filter(waits).map(|view| view.name()).collect();
    let more = if names.len() > SHOWN { ", …" } else { "" };
    match names.len() {
        0 => String::new(),
        count => {
            let shown = names[..count.min(SHOWN)].join(", ");
            format!("; waiting for a restart: {count} ({shown}{more})")
        }
    }
}

fn set_degradation(
    conditions: &mut PoolConditions<'_>,
    layering: &PoolLayering<'_>,
    views: &[NodeView<'_>],
    machine_config_nodes: &[&MachineConfigNode],
    degraded: i32,
) {
    let (reporting, message) = degraded_message(views, machine_config_nodes);
    if degraded > 0 {
        let reason = format!("{reporting} nodes are reporting degraded status on sync");
        conditions.set(condition::NODE_DEGRADED, true, &reason, &message);
    } else {
        conditions.set(condition::NODE_DEGRADED, false, "", "");
    }
    let render_degraded = conditions.is_true(condition::RENDER_DEGRADED);
    let build_degraded = image_degradation(conditions, layering);
    if degraded > 0 {
        conditions.set(condition::DEGRADED, true, "", &message);
    } else if build_degraded {
        conditions.set(condition::DEGRADED, true, "", "Custom OS image build failed");
    } else {
        conditions.set(condition::DEGRADED, render_degraded, "", "");
    }
}

/// The messages of degraded machines: from their MachineConfigNodes, then from their daemons.
fn degraded_message(
    views: &[NodeView<'_>],
    machine_config_nodes: &[&MachineConfigNode],
) -> (usize, String) {
    let by_name: HashMap<&str, &NodeView<'_>> =
        views.iter().map(|view| (view.name(), view)).collect();
    let mut degraded = Vec::new();
    let mut messages = Vec::new();
    for node in machine_config_nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let Some(view) = by_name.get(name) else { continue };
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let found = conditions
            .filter(|condition| condition.type_ == machine_config_node::NODE_DEGRADED)
            .find(|condition| condition.status == "True");
        if let Some(condition) = found {
            degraded.push(**view);
            let message = condition.message.as_deref().unwrap_or_default();
            let message = excerpt(message, MAX_REASON_CHARS);
            messages.push(format!("Node {name} is reporting: {message:?}"));
        }
    }
    for view in &degraded {
        if !view.reason().is_empty() {
            messages.push(format!("Node {} is reporting: {:?}", view.name(), view.reason()));
        }
    }
    (degraded.len(), messages.join(", "))
}

/// The conditions of a pool and the time at which they are set.
pub(super) struct PoolConditions<'a> {
    pub(super) list: Vec<Condition>,
    pub(super) now: &'a Time,
}

impl PoolConditions<'_> {
    pub(super) fn set(&mut self, type_: &str, value: bool, reason: &str, message: &str) {
        set_condition(&mut self.list, type_, value, reason, message, self.now);
    }

    pub(super) fn is_true(&self, type_: &str) -> bool {
        self.list.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
    }
}
