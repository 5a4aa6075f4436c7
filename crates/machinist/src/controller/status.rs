//! What a pool says about itself. There is one writer of it: the rollout loop.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use machinist_core::api::names::annotation::machinist;
use machinist_core::api::names::condition::pool as condition;
use machinist_core::api::{
    Condition, MachineConfigNode, MachineConfigPool, MachineConfigPoolStatus, find_condition,
    set_condition,
};
use machinist_core::rollout::{PoolLayering, RolloutHalted, pool_status_for, stream_of};
use serde_json::{Value, json};

use super::context::{Context, WriteError};
use super::generate::PoolNotes;
use super::render::RenderStatus;

/// Brings the status of a pool up to date; the pool as written, or nothing if it said all that before.
pub(super) async fn write_status(
    shell: &Context,
    pool: &Arc<MachineConfigPool>,
    layering: &PoolLayering<'_>,
    members: &[&Node],
    machine_config_nodes: &[Arc<MachineConfigNode>],
    problems: &[String],
    now: &Time,
) -> Result<Option<MachineConfigPool>, WriteError> {
    let render = shell.render_statuses.borrow().get(&pool.name_any()).cloned();
    // What was written a moment ago may be newer than what the turn began with.
    let latest = shell.caches.pools.get(&pool.name_any());
    let pool = latest.as_ref().unwrap_or(pool);
    let status = desired_status(
        shell,
        pool,
        layering,
        members,
        machine_config_nodes,
        render.as_ref(),
        problems,
        now,
    );
    shell.metrics.set_pool(&pool.name_any(), &status);
    if pool.status.as_ref() == Some(&status) {
        return Ok(None);
    }
    let mut patch = json!({
        "metadata": {"resourceVersion": pool.resource_version()},
        "status": status,
    });
    if status.os_image_stream.is_none() {
        // What is left out of a patch stays.
        patch["status"]["osImageStream"] = Value::Null;
    }
    let written: MachineConfigPool = shell.merge_patch_status(&pool.name_any(), &patch).await?;
    shell.caches.pools.upsert(written.clone());
    Ok(Some(written))
}

#[expect(clippy::too_many_arguments, reason = "all that a status is made of")]
fn desired_status(
    shell: &Context,
    pool: &MachineConfigPool,
    layering: &PoolLayering<'_>,
    members: &[&Node],
    machine_config_nodes: &[Arc<MachineConfigNode>],
    render: Option<&RenderStatus>,
    problems: &[String],
    now: &Time,
) -> MachineConfigPoolStatus {
    let mut pool = pool.clone();
    let mut conditions = pool.status.take().unwrap_or_default();
    render_condition(conditions.conditions.get_or_insert_default(), render, now);
    pool.status = Some(conditions);
    // A pool that has never had a config has nothing to say about its machines.
    if pool.spec.configuration.as_ref().is_none_or(|c| c.name.is_none()) {
        return unrendered_status(pool.status.take().unwrap_or_default(), &pool, problems, now);
    }
    let controller_config = shell.caches.controller_config();
    let machines: Vec<&MachineConfigNode> =
        machine_config_nodes.iter().map(AsRef::as_ref).collect();
    let mut status =
        pool_status_for(layering, &pool, members, &machines, controller_config.as_deref(), now);
    let image_of = |name: &str| shell.caches.configs.get(name)?.spec.os_image_url.clone();
    status.os_image_stream = stream_of(&status, image_of, shell.caches.streams().as_deref());
    blocked_condition(status.conditions.get_or_insert_default(), problems, now);
    let notes = shell.pool_notes.borrow().get(&pool.name_any()).cloned().unwrap_or_default();
    generated_conditions(status.conditions.get_or_insert_default(), &notes, now);
    status
}

/// The status of a pool that has no config yet: only why.
fn unrendered_status(
    mut status: MachineConfigPoolStatus,
    pool: &MachineConfigPool,
    problems: &[String],
    now: &Time,
) -> MachineConfigPoolStatus {
    status.observed_generation = pool.metadata.generation;
    let conditions = status.conditions.get_or_insert_default();
    let bad =
        find_condition(conditions, condition::RENDER_DEGRADED).is_some_and(Condition::is_true);
    set_condition(conditions, condition::DEGRADED, bad, "", "", now);
    blocked_condition(conditions, problems, now);
    status
}

/// How the rendering went. Where it is not known yet, what was said before stands.
fn render_condition(conditions: &mut Vec<Condition>, render: Option<&RenderStatus>, now: &Time) {
    let (bad, reason, message) = match render {
        None | Some(RenderStatus::Waiting) => return,
        Some(RenderStatus::Rendered) => (false, "", ""),
        Some(RenderStatus::NoSources(message)) => (false, "NothingToRender", message.as_str()),
        Some(RenderStatus::Failed(message)) => (true, "", message.as_str()),
    };
    set_condition(conditions, condition::RENDER_DEGRADED, bad, reason, message, now);
}

/// What keeps the rollout from going on, where the real system would only log it. The condition is there only on pools
/// that ever needed it.
fn blocked_condition(conditions: &mut Vec<Condition>, problems: &[String], now: &Time) {
    sparse_condition(conditions, condition::ROLLOUT_BLOCKED, "Blocked", problems, now);
}

/// What is to be said about MachineConfigs that were generated for the pool.
fn generated_conditions(conditions: &mut Vec<Condition>, notes: &PoolNotes, now: &Time) {
    let (bad, overridden) = (condition::GENERATE_DEGRADED, condition::GENERATED_OVERRIDDEN);
    sparse_condition(conditions, bad, "InvalidSource", &notes.problems, now);
    sparse_condition(conditions, overridden, "SameFile", &notes.overridden, now);
}

/// A condition that is there only on pools that ever needed it.
fn sparse_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    reason: &str,
    messages: &[String],
    now: &Time,
) {
    if !messages.is_empty() {
        set_condition(conditions, type_, true, reason, &messages.join("; "), now);
    } else if find_condition(conditions, type_).is_some() {
        set_condition(conditions, type_, false, "", "", now);
    }
}

/// What the whole pool stands still for, if a person should know.
#[must_use]
pub(super) fn halted_message(halted: &RolloutHalted) -> Option<String> {
    match halted {
        RolloutHalted::BadConfig { config, failed } => Some(format!(
            "{config} is remembered as bad ({}); take it out of the annotation {} to try it again",
            if failed.is_empty() {
                "no machine fails on it now".to_owned()
            } else {
                format!("failed on {}", failed.join(", "))
            },
            machinist::BAD_CONFIGS,
        )),
        _ => None,
    }
}

/// Whether a pool says that all its machines are up to date.
#[must_use]
pub(super) fn is_updated(pool: &MachineConfigPool) -> bool {
    let conditions = pool.status.as_ref().and_then(|status| status.conditions.as_deref());
    let updated = find_condition(conditions.unwrap_or_default(), condition::UPDATED);
    updated.is_some_and(Condition::is_true)
}
