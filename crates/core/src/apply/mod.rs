//! How the disk of a machine changes from one config to another: an ordered list of steps, each of which
//! can be undone.
//!
//! ```text
//! (current config, new config, tree) ─ plan_apply ─→ ApplyPlan { steps }
//! ```
//!
//! A plan names for every path that changes what is there ([`DiskStep::from`]) and what will be there
//! ([`DiskStep::to`]). The change is played through in an overlay over the tree; a path that ends as it
//! began is not a step, so the plan for a machine that is as its config says is empty. Undoing a plan is
//! the same list in reverse. The shell performs plans in `daemon/apply`.
//!
//! | module | decides |
//! |---|---|
//! | `cluster_files` | files that the cluster keeps up to date next to the config |
//! | `managed_paths` | which paths a config manages, and what it wants there |
//! | `derived_files` | files that follow from files of the config on some hosts |
//! | `member_index` | the index of the machine's etcd member, in its configs |
//! | `originals` | what is kept before a path is taken over, and what is restored |
//! | `owned_paths` | what on a disk is Machinist's doing, and what was there before |
//! | `original_names` | where they are kept, within the limits of names and paths |
//! | `systemd` | what enabling, disabling and presetting a unit does to links |
//! | `users` | keys and password of `core` by MCO's rules; IDs of users and groups |
//! | `accounts`, `account_files` | users on other hosts, and the lines of `/etc/passwd` and its relatives |
//! | `baseline` | the rest of the previous state, so that it can be restored |
//! | `resolve` | where a path leads when there are links in it |
//! | `steps` | the order of the steps |
//! | `obstacle` | what keeps a path from being changed, and the remedy |
//! | `quarantine` | steps that could not be undone, and the tree without them |
//! | `subset` | parts of a plan |
//! | `verify`, `repair` | how the disk differs from a config, and the plan that repairs it |

mod account_files;
mod accounts;
mod baseline;
mod cluster_files;
mod current_config;
mod derived_files;
mod error;
mod fs_node;
mod managed_paths;
mod member_index;
mod obstacle;
mod original_names;
mod originals;
mod overlay;
mod owned_paths;
mod quarantine;
mod repair;
mod resolve;
mod steps;
mod subset;
mod systemd;
#[cfg(test)]
mod tests;
mod tree;
mod users;
mod verify;

use serde::{Deserialize, Serialize};

pub use accounts::KeysFiles;
pub use baseline::{BASELINE_PATH, HostBaseline};
pub use cluster_files::{
    CLUSTER_CERTIFICATES, ClusterFile, ClusterFiles, plan_cluster_files, plan_release_all,
};
pub use current_config::{
    EMPTY_CONFIG_NAME, asks_for_nothing, current_config_bytes, empty_config, from_ignition,
    parse_current_config, with_ignition_config,
};
pub use error::ApplyError;
pub use fs_node::{ContentSource, FileContent, FileMeta, FileOwner, FsNode};
pub use member_index::member_index;
pub use obstacle::{
    Obstacle, ObstructedPath, PathFacts, describe_obstructed, find_obstacle, own_file_obstacle,
};
pub use original_names::{LONG_ORIGINALS, no_original_marker, original_path};
pub use owned_paths::{OwnedPath, PathBefore, owned_paths};
pub use quarantine::{QUARANTINE_PATH, Quarantine, QuarantineView, QuarantinedStep, RemainingWork};
pub use repair::{RepairPlan, plan_repair};
pub use systemd::EnablementMismatch;
pub use tree::{FsTree, FsTreeError, InMemoryTree};
pub use verify::{ManagedPart, ManagedPath, VerifyReport, split_contents, verify};

use crate::api::MachineConfig;
use crate::api::names::path::{CURRENT_CONFIG, CURRENT_IMAGE, KUBECONFIG};
use crate::reconcile_check::ConfigChange;
use overlay::TreeOverlay;

/// The permissions of the daemon's own files: they hold contents of files that only root may read.
pub const PRIVATE_FILE_MODE: u32 = 0o600;
/// The permissions of the daemon's own directories. Originals in them keep their own permissions.
pub const PRIVATE_DIRECTORY_MODE: u32 = 0o700;

/// What a plan needs to know about the host besides its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDefaults {
    /// The owner of files for which a config names none: root, or the user who builds an image without
    /// being root.
    pub owner: FileOwner,
    /// Today, in days since 1970, for the date of a password change.
    pub today: u32,
    /// Where sshd reads the keys of users; `None` on hosts where MCO's rules apply.
    pub keys_files: Option<KeysFiles>,
    /// Whether containerd reads its own files about registries.
    pub has_containerd: bool,
}

/// One change of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStep {
    /// The path: absolute, beneath the root, without links in its parents.
    pub path: String,
    /// What is there.
    pub from: FsNode,
    /// What will be there.
    pub to: FsNode,
}

/// All steps of a change, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyPlan {
    /// The name of the current config.
    pub from: String,
    /// The name of the new config.
    pub to: String,
    /// The steps. Directories are created before their contents; removals come last.
    pub steps: Vec<DiskStep>,
    /// What the config asks for and this plan does not do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Plans a change. `change` is the result of [`crate::reconcile_check::check_reconcilable`]; a machine
/// without a config has [`empty_config`].
pub fn plan_apply(
    old: &MachineConfig,
    new: &MachineConfig,
    change: &ConfigChange,
    tree: &dyn FsTree,
    defaults: HostDefaults,
) -> Result<ApplyPlan, ApplyError> {
    let change = &*member_index::for_machine(change, tree);
    let mut view = TreeOverlay::new(tree, defaults);
    let mut record = baseline::read(&mut view)?;
    let mut notes = Vec::new();
    let (old_users, new_users) = (&change.old.passwd, &change.new.passwd);
    let keys_files = view.defaults.keys_files.take();
    if let Some(keys_files) = &keys_files {
        accounts::apply_accounts(old_users, new_users, keys_files, &mut view, &mut record)?;
    }
    let before = managed_paths::managed_paths(&change.old, &mut view)?;
    let wanted = managed_paths::desired_paths(&change.new, &mut view)?;

    systemd::release_units(&change.old, &change.new, &mut view, &mut record)?;
    let enabled =
        systemd::disable_before_rewrite(&change.old, &change.new, &mut view, &mut record)?;
    originals::release(&before, &wanted, &mut view)?;
    let listed = systemd::units_with_files(&change.new, &mut view)?;
    if view.defaults.has_containerd {
        let left_out = derived_files::derived_files(&change.new).1;
        notes.extend(left_out.into_iter().map(|what| format!("not applied: {what}")));
    }
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
    if keys_files.is_none() {
        notes.extend(users::apply_core_user(old_users, new_users, &mut view, &mut record)?);
    }
    restrict_kubeconfig(&mut view, &mut record)?;
    if manages_nothing(new, change) {
        record.restore_metas(&mut view)?;
    }

    view.write(CURRENT_CONFIG, current_config::current_config_bytes(new))?;
    let image = crate::os::layered_image(new).unwrap_or_default();
    view.write(CURRENT_IMAGE, image.as_bytes().to_vec())?;
    record.write(&mut view)?;
    let name = |mc: &MachineConfig| mc.metadata.name.clone().unwrap_or_default();
    Ok(ApplyPlan { from: name(old), to: name(new), steps: steps::ordered_steps(view)?, notes })
}

/// Only root may read the kubelet's credentials, whoever wrote them.
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

/// Whether a config manages nothing, so that everything is restored.
fn manages_nothing(new: &MachineConfig, change: &ConfigChange) -> bool {
    let config = &change.new;
    config.storage.files.is_empty()
        && config.systemd.units.is_empty()
        && config.passwd.users.is_empty()
        && not_applied_here(new).is_empty()
}

/// What a config asks for that is not about files. The daemon of a running machine applies it.
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
        format!("{field} is not about files and was left as it is: the daemon of a running machine applies it")
    })
    .collect()
}
