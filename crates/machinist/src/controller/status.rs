//! Writes the status of a pool. `core::rollout::reported_pool_status` decides what it says; the rollout loop is the only
//! caller, so that the status has one writer.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use machinist_core::api::{MachineConfigNode, MachineConfigPool};
use machinist_core::rollout::{PoolLayering, PoolStatusInputs, RolloutBlock, reported_pool_status};
use serde_json::{Value, json};

use super::context::{Context, WriteError};

/// Brings the status of a pool up to date. Returns the pool as written, or nothing if its status was right.
pub(super) async fn write_status(
    context: &Context,
    pool: &Arc<MachineConfigPool>,
    layering: &PoolLayering<'_>,
    members: &[&Node],
    machine_config_nodes: &[Arc<MachineConfigNode>],
    (problems, blocks): (&[String], &[RolloutBlock]),
    now: &Time,
) -> Result<Option<MachineConfigPool>, WriteError> {
    let (caches, name) = (&context.caches, pool.name_any());
    // Our own write a moment ago may be newer than the pool that this pass started with.
    let latest = caches.pools.get(&name);
    let pool = latest.as_ref().unwrap_or(pool);
    let render = context.render_statuses.borrow().get(&name).cloned();
    let notes = context.pool_notes.borrow().get(&name).cloned().unwrap_or_default();
    let machines: Vec<&MachineConfigNode> =
        machine_config_nodes.iter().map(AsRef::as_ref).collect();
    let (controller_config, streams) = (caches.controller_config(), caches.streams());
    let inputs = PoolStatusInputs {
        pool,
        layering,
        members,
        machine_config_nodes: &machines,
        controller_config: controller_config.as_deref(),
        streams: streams.as_deref(),
        render: render.as_ref(),
        rollout_problems: problems,
        rollout_blocks: blocks,
        notes: &notes,
    };
    let image_of = |name: &str| caches.configs.get(name)?.spec.os_image_url.clone();
    let status = reported_pool_status(&inputs, image_of, now);
    context.metrics.set_pool(&name, &status);
    if pool.status.as_ref() == Some(&status) {
        return Ok(None);
    }
    let mut patch = json!({
        "metadata": {"resourceVersion": pool.resource_version()},
        "status": status,
    });
    if status.os_image_stream.is_none() {
        // A merge patch keeps a field that it does not name.
        patch["status"]["osImageStream"] = Value::Null;
    }
    let written: MachineConfigPool = context.merge_patch_status(&name, &patch).await?;
    caches.pools.upsert(written.clone());
    Ok(Some(written))
}
