//! MachineConfigNodes: where each machine is in an update. What is said there must never hold up the update itself, so
//! failures are only logged.

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

/// Makes the object of a machine that has none.
pub(super) async fn create(shell: &Context, node: &Node, pool: &str) {
    let api: Api<MachineConfigNode> = Api::all(shell.client.clone());
    let object = new_machine_config_node(node, pool);
    match shell.write(api.create(&PostParams::default(), &object)).await {
        Ok(made) => shell.caches.machine_config_nodes.upsert(made),
        Err(error) if error.is_conflict() => {}
        Err(error) => log_failure(node, &error),
    }
}

/// Says which pool a machine is in and which config it is to have.
pub(super) async fn set_desired_config(shell: &Context, node: &Node, pool: &str, config: &str) {
    let Some(object) = shell.caches.machine_config_nodes.get(&node.name_any()) else { return };
    if object.spec.config_version.desired == config && object.spec.pool.name == pool {
        return;
    }
    let patch = json!({"spec": {"pool": {"name": pool}, "configVersion": {"desired": config}}});
    match shell.merge_patch(&node.name_any(), &patch).await {
        Ok(written) => shell.caches.machine_config_nodes.upsert(written),
        Err(error) => log_failure(node, &error),
    }
}

/// Reports a step of a machine.
pub(super) async fn write_status(shell: &Context, node: &Arc<Node>, report: &NodeReport) {
    let Some(object) = shell.caches.machine_config_nodes.get(&node.name_any()) else { return };
    let Some(status) = apply_report(&object, node, report, &Time(Timestamp::now())) else { return };
    let patch = json!({
        "metadata": {"resourceVersion": object.resource_version()},
        "status": status,
    });
    match shell.merge_patch_status(&node.name_any(), &patch).await {
        Ok(written) => shell.caches.machine_config_nodes.upsert(written),
        Err(error) => log_failure(node, &error),
    }
}

fn log_failure(node: &Node, error: &WriteError) {
    tracing::debug!(node = node.name_any(), %error, "cannot write the MachineConfigNode");
}
