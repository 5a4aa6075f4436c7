//! What a change would do to this machine, without doing it. Called by `machinist daemon preview`.

use std::path::Path;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use machinist_core::api::MachineConfig;
use machinist_core::api::names::annotation::DESIRED_IMAGE;
use machinist_core::api::operator::{DisruptionAction, MachineConfiguration};
use machinist_core::apply::empty_config;
use machinist_core::daemon::{self, actions};
use machinist_core::diff::diff;
use machinist_core::disruption::{DisruptionRules, disruption};
use machinist_core::node::NodeView;
use machinist_core::os::{self, DesiredOs, with_layered_image};
use machinist_core::reconcile_check::check_reconcilable;
use serde::Serialize;

use super::os::abilities::{detect_abilities, with_user_rules};
use super::os::detect;
use super::root::HostRoot;
use super::state;
use super::transaction::{self, FsChange};

/// What a change would do.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangePreview {
    /// The current config.
    pub(crate) from: String,
    /// The new config.
    pub(crate) to: String,
    /// What would change in the operating system.
    #[serde(rename = "os", skip_serializing_if = "Vec::is_empty")]
    pub(crate) os_changes: Vec<String>,
    /// Why the machine would refuse it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    /// The changes of the disk, in order.
    pub(crate) changes: Vec<FsChange>,
    /// The actions after that.
    pub(crate) actions: Vec<DisruptionAction>,
    /// Whether the machine would be drained first.
    #[serde(rename = "drain")]
    pub(crate) needs_drain: bool,
    /// What would be left out or is unusual.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// Plans a change of the machine.
pub(crate) fn preview(
    path: &Path,
    new: &MachineConfig,
    settings: Option<&MachineConfiguration>,
) -> Result<ChangePreview> {
    let root = HostRoot::open_read_only(path)?;
    let old = state::current_config(&root)?.unwrap_or_else(empty_config);
    let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
    let mut preview = ChangePreview {
        from: name(&old),
        to: name(new),
        os_changes: Vec::new(),
        refused: None,
        changes: Vec::new(),
        actions: Vec::new(),
        needs_drain: false,
        notes: Vec::new(),
    };
    let overrides = with_user_rules(path, daemon::validation_overrides(settings));
    let change = match check_reconcilable(&old, new, overrides) {
        Ok(change) => change,
        Err(refusal) => {
            preview.refused = Some(refusal.to_string());
            return Ok(preview);
        }
    };
    let mut flags = diff(&old, new, &change).flags;
    let os = os_change(path, &old, new)?;
    flags.os_update = os.image.is_some();
    preview.os_changes = os.describe_lines();
    if !os.is_empty() {
        let found = detect::detect(path);
        preview.refused = found.os.refusal(&os);
        if preview.refused.is_some() {
            return Ok(preview);
        }
        if !os.kernel_arguments.is_empty() && !found.supports_kernel_arguments {
            flags.kargs = false;
            preview.os_changes.clear();
            preview.notes.push(format!("kernel arguments are not removed here: {}", found.reason));
        }
    }
    let host = detect_abilities(path);
    preview.refused = host.profile_refusal(&old, new);
    if preview.refused.is_some() {
        return Ok(preview);
    }
    let plan = transaction::plan(&root, &old, new)?;
    let policy = daemon::effective_disruption_policy(settings);
    let rules = DisruptionRules::new(&policy, &old, new, Some(&host));
    preview.actions = disruption(&change, flags, &rules).actions;
    preview.needs_drain = actions::needs_drain(&preview.actions, &change, true);
    preview.changes = plan.steps.iter().map(transaction::describe).collect();
    preview.refused =
        transaction::check_obstacles(&root, &plan).err().map(|refusal| format!("{refusal:#}"));
    preview.notes.extend(plan.notes);
    Ok(preview)
}

/// What would change in the operating system.
fn os_change(path: &Path, old: &MachineConfig, new: &MachineConfig) -> Result<os::OsChange> {
    let (old, new) = (DesiredOs::from_config(old), DesiredOs::from_config(new));
    if old == new {
        return Ok(os::OsChange::default());
    }
    Ok(os::OsChange::between(&old, &new, &detect::detect(path).os.status()?.booted))
}

/// The desired config of a machine, and the settings for disruptions.
pub(crate) async fn desired(
    client: &Client,
    node: &str,
) -> Result<(MachineConfig, Option<MachineConfiguration>)> {
    let nodes: Api<Node> = Api::all(client.clone());
    let found = nodes.get(node).await.with_context(|| format!("Node {node}"))?;
    let desired = NodeView(&found).desired_config();
    anyhow::ensure!(
        !desired.is_empty(),
        "Node {node}: no config is assigned yet: wait for the controller, or check that the Node is in a pool"
    );
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let config = if desired == machinist_core::apply::EMPTY_CONFIG_NAME {
        empty_config()
    } else {
        let config = configs.get(desired).await;
        let config = config.with_context(|| format!("MachineConfig {desired}"))?;
        with_layered_image(config, NodeView(&found).annotation(DESIRED_IMAGE))
    };
    let settings: Api<MachineConfiguration> = Api::all(client.clone());
    let settings = settings.get_opt(machinist_core::api::names::object::CLUSTER).await;
    Ok((config, settings.unwrap_or_default()))
}
