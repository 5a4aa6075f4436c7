//! What a change would do to this machine: the plan as an artefact, without doing anything.

use std::path::Path;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use machinist_core::agent::{self, actions};
use machinist_core::api::MachineConfig;
use machinist_core::api::operator::{DisruptionAction, MachineConfiguration};
use machinist_core::apply::empty_config;
use machinist_core::diff::diff;
use machinist_core::disruption::disruption;
use machinist_core::reconcile_check::reconcilable;
use machinist_core::update::NodeView;
use serde::Serialize;

use super::once::{self, Change};
use super::root::Root;

/// What a change would do.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Preview {
    /// The config that the machine has.
    pub(crate) from: String,
    /// The config that it would have.
    pub(crate) to: String,
    /// Why it would refuse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    /// What would change on the disk, in order.
    pub(crate) changes: Vec<Change>,
    /// What would be done after that.
    pub(crate) actions: Vec<DisruptionAction>,
    /// Whether the machine would be emptied first.
    pub(crate) drain: bool,
    /// What would be left out or is odd.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// Plans a change of the machine.
pub(crate) fn preview(
    path: &Path,
    new: &MachineConfig,
    settings: Option<&MachineConfiguration>,
) -> Result<Preview> {
    let root = Root::to_look_at(path)?;
    let old = once::current(&root)?.unwrap_or_else(empty_config);
    let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
    let mut preview = Preview {
        from: name(&old),
        to: name(new),
        refused: None,
        changes: Vec::new(),
        actions: Vec::new(),
        drain: false,
        notes: Vec::new(),
    };
    let change = match reconcilable(&old, new, agent::overrides(settings)) {
        Ok(change) => change,
        Err(refusal) => {
            preview.refused = Some(refusal.to_string());
            return Ok(preview);
        }
    };
    let plan = once::plan(&root, &old, new, &change)?;
    let flags = diff(&old, new, &change).flags;
    preview.actions = disruption(&change, flags, &agent::policy(settings)).actions;
    preview.drain = actions::wants_drain(&preview.actions, &change);
    preview.changes = plan.steps.iter().map(once::describe).collect();
    preview.notes = plan.notes;
    Ok(preview)
}

/// The config that a machine is to have, and what is said about changes.
pub(crate) async fn desired(
    client: &Client,
    node: &str,
) -> Result<(MachineConfig, Option<MachineConfiguration>)> {
    let nodes: Api<Node> = Api::all(client.clone());
    let found = nodes.get(node).await.with_context(|| format!("Node {node}"))?;
    let desired = NodeView(&found).desired_config();
    anyhow::ensure!(
        !desired.is_empty(),
        "Node {node}: nobody has said yet which config it is to have"
    );
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let config = if desired == machinist_core::apply::EMPTY_NAME {
        empty_config()
    } else {
        configs.get(desired).await.with_context(|| format!("MachineConfig {desired}"))?
    };
    let settings: Api<MachineConfiguration> = Api::all(client.clone());
    let settings = settings.get_opt(machinist_core::api::names::object::CLUSTER).await;
    Ok((config, settings.unwrap_or_default()))
}
