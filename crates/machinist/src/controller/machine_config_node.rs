//! Writes MachineConfigNodes: how far each machine is in an update. They must never hold up the update itself, so a failed
//! write is only reported.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use machinist_core::api::MachineConfigNode;
use machinist_core::node::machine_config_node::{
    NodeReport, apply_report, new_machine_config_node,
};
use serde_json::json;

use super::context::{Context, WriteError};
use super::event_component;

/// Creates the object of a machine that has none.
pub(super) async fn create(context: &Context, node: &Node, pool: &str) {
    let api: Api<MachineConfigNode> = Api::all(context.client.clone());
    let object = new_machine_config_node(node, pool);
    match context.write(api.create(&PostParams::default(), &object)).await {
        Ok(made) => {
            report_success(context, "create the MachineConfigNode", node);
            context.caches.machine_config_nodes.upsert(made);
        }
        Err(error) if error.is_conflict() => {}
        Err(error) => report_failure(context, "create the MachineConfigNode", node, &error),
    }
}

/// Records the pool and the desired config of a machine.
pub(super) async fn set_desired_config(context: &Context, node: &Node, pool: &str, config: &str) {
    let Some(object) = context.caches.machine_config_nodes.get(&node.name_any()) else { return };
    if object.spec.config_version.desired == config && object.spec.pool.name == pool {
        return;
    }
    let patch = json!({"spec": {"pool": {"name": pool}, "configVersion": {"desired": config}}});
    match context.merge_patch(&node.name_any(), &patch).await {
        Ok(written) => {
            report_success(context, "write the MachineConfigNode", node);
            context.caches.machine_config_nodes.upsert(written);
        }
        Err(error) => report_failure(context, "write the MachineConfigNode", node, &error),
    }
}

/// Records a step of a machine.
pub(super) async fn write_status(context: &Context, node: &Arc<Node>, report: &NodeReport) {
    let Some(object) = context.caches.machine_config_nodes.get(&node.name_any()) else { return };
    let Some(status) = apply_report(&object, node, report, &Time(Timestamp::now())) else { return };
    let patch = json!({
        "metadata": {"resourceVersion": object.resource_version()},
        "status": status,
    });
    match context.merge_patch_status(&node.name_any(), &patch).await {
        Ok(written) => {
            report_success(context, "write the MachineConfigNode status", node);
            context.caches.machine_config_nodes.upsert(written);
        }
        Err(error) => report_failure(context, "write the MachineConfigNode status", node, &error),
    }
}

fn report_success(context: &Context, task: &'static str, node: &Node) {
    context.failures.succeeded(task, &node.name_any());
}

fn report_failure(context: &Context, task: &'static str, node: &Node, error: &WriteError) {
    if !error.is_conflict() && !matches!(error, WriteError::NotLeading) {
        context.write_failed(task, event_component::NODE, node, error);
    }
}
