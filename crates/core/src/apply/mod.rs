//! How a machine goes from one config to another on disk: an ordered list of steps, each with its
//! way back.
//!
//! ```text
//! (config the machine has, config it is to have, the tree) ─ plan ─→ Plan { steps }
//! ```
//!
//! A plan says for every path that changes what is there ([`Step::from`]) and what is to be there
//! ([`Step::to`]). It is found by playing the change through in a [`view`] of the tree: what ends
//! as it began is no step, so a plan for a machine that is as it should be is empty. The way back
//! is the same list the other way round.
//!
//! | file | decides |
//! |---|---|
//! | `cluster` | files that the cluster keeps up to date beside the config |
//! | `managed` | which paths a config speaks about, and what it wants there |
//! | `originals` | what is kept before a path is taken over, and what is put back |
//! | `systemd` | what enabling, disabling and presetting a unit does to links |
//! | `users` | keys and password of `core`; numbers of users and groups |
//! | `record` | what else was there before, so that it can be put back |
//! | `resolve` | where a path really lies when links are on its way |
//! | `steps` | in which order things are done |
//! | `verify` | what a config wants beside what is there, and the plan that puts differences right |

mod baseline;
mod cluster_files;
mod current_config;
mod error;
mod fs_node;
mod managed_paths;
mod originals;
mod overlay;
mod resolve;
mod steps;
mod systemd;
#[cfg(test)]
mod tests;
mod tree;
mod users;
mod verify;

use serde::{Deserialize, Serialize};

pub use baseline::{BASELINE_PATH, HostBaseline};
pub use cluster_files::{
    CLUSTER_CERTIFICATES, ClusterFile, ClusterFiles, plan_cluster_files, plan_release_all,
};
pub use current_config::{EMPTY_CONFIG_NAME, empty_config, from_ignition, parse_current_config};
pub use error::ApplyError;
pub use fs_node::{ContentSource, FileContent, FileMeta, FileOwner, FsNode};
pub use systemd::EnablementMismatch;
pub use tree::{FsTree, FsTreeError, InMemoryTree};
pub use verify::{ManagedPart, ManagedPath, VerifyReport, plan_repair, split_contents, verify};

use crate::api::MachineConfig;
use crate::api::names::path::{CURRENT_CONFIG, CURRENT_IMAGE, KUBECONFIG};
use crate::reconcile_check::ConfigChange;
use overlay::TreeOverlay;

/// What the plan must know about the host besides its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostDefaults {
    /// Who owns files of which a config does not say it: root, or whoever prepares an image
    /// without being root.
    pub owner: FileOwner,
    /// The day, counted from 1970, for the date of a password's change.
    pub today: u32,
}

/// One change at one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStep {
    /// Where: absolute beneath the root, with no link on the way.
    pub path: String,
    /// What is there.
    pub from: FsNode,
    /// What is to be there.
    pub to: FsNode,
}

/// All that is to be done, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyPlan {
    /// The name of the config that the machine has.
    pub from: String,
    /// The name of the config that it is to have.
    pub to: String,
    /// The steps. Folders come before what is in them; what goes comes after what is put in place.
    pub steps: Vec<DiskStep>,
    /// What the config asks for and this plan does not do, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Plans the change. `change` is what [`crate::reconcile_check::reconcilable`] made of the two
/// configs; a machine that has none yet has [`empty_config`].
pub fn plan_apply(
    old: &MachineConfig,
    new: &MachineConfig,
    change: &ConfigChange,
    tree: &dyn FsTree,
    style: HostDefaults,
) -> Result<ApplyPlan, ApplyError> {
    let mut view = TreeOverlay::new(tree, style);
    let mut record = baseline::read(&mut view)?;
    let mut notes = Vec::new();
    let before = managed_paths::managed_paths(&change.old, &mut view)?;
    let wanted = managed_paths::desired_paths(&change.new, &mut view)?;

    systemd::release_units(&change.old, &change.new, &mut view, &mut record)?;
    let enabled =
        systemd::disable_before_rewrite(&change.old, &change.new, &mut view, &mut record)?;
    originals::release(&before, &wanted, &mut view)?;
    let listed = systemd::units_with_files(&change.new, &mut view)?;
    let written = verify::without_cluster_managed_files(&wanted, change, &mut view)?;
    originals::take_over(&before, &written, &mut view)?;
    notes.extend(systemd::apply_enablement(
        &systemd::UnitsChange {
            old: &change.old,
            new: &change.new,
            with_files: listed,
            links_before: enabled,
        },
        &mut view,
        &mut record,
    )?);
    notes.extend(users::apply_core_user(
        &change.old.passwd,
        &change.new.passwd,
        &mut view,
        &mut record,
    )?);
    restrict_kubeconfig(&mut view, &mut record)?;
    if manages_nothing(new, change) {
        record.restore_metas(&mut view)?;
    }

    view.write(CURRENT_CONFIG, current_config::to_bytes(new))?;
    let image = crate::os::layered_image(new).unwrap_or_default();
    view.write(CURRENT_IMAGE, image.as_bytes().to_vec())?;
    record.write(&mut view)?;
    let name = |mc: &MachineConfig| mc.metadata.name.clone().unwrap_or_default();
    Ok(ApplyPlan { from: name(old), to: name(new), steps: steps::ordered_steps(view)?, notes })
}

/// The kubelet's credentials are for root alone, whatever wrote them.
fn restrict_kubeconfig(
    view: &mut TreeOverlay,
    record: &mut HostBaseline,
) -> Result<(), ApplyError> {
    let path = view.resolve(KUBECONFIG)?;
    if let FsNode::File { meta, content } = view.node(&path)?
        && meta.mode != 0o600
    {
        record.keep_meta(&path, meta);
        view.set(&path, FsNode::File { meta: FileMeta { mode: 0o600, ..meta }, content });
    }
    Ok(())
}

/// A config without files, units and users gives everything back.
fn manages_nothing(new: &MachineConfig, change: &ConfigChange) -> bool {
    let config = &change.new;
    config.storage.files.is_empty()
        && config.systemd.units.is_empty()
        && config.passwd.users.is_empty()
        && not_applied_here(new).is_empty()
}

/// What a config asks for that is not about files: the daemon sees to it, on a machine that runs.
#[must_use]
pub fn not_applied_here(new: &MachineConfig) -> Vec<String> {
    let spec = &new.spec;
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let has_any = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
    let kernel = spec.kernel_type.as_deref().unwrap_or_default();
    [
        ("spec.osImageURL", is_set(&spec.os_image_url)),
        ("spec.kernelArguments", has_any(&spec.kernel_arguments)),
        ("spec.extensions", has_any(&spec.extensions)),
        ("spec.kernelType", !matches!(kernel, "" | "default")),
    ]
    .into_iter()
    .filter(|(_, asked)| *asked)
    .map(|(field, _)| {
        format!("{field} is not about files and was left as it is: the daemon of a running machine sees to it")
    })
    .collect()
}
