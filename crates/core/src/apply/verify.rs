//! Compares what a config wants with what is there, path by path. Used by `drift` and by the check before
//! an update; `repair` plans what follows from it.

use std::collections::BTreeSet;

use super::HostDefaults;
use super::error::ApplyError;
use super::fs_node::{FileContent, FileMeta, FsNode};
use super::managed_paths::{self, DesiredPath};
use super::overlay::TreeOverlay;
use super::systemd::{self, EnablementMismatch};
use super::tree::FsTree;
use super::users::UserDatabase;
use crate::api::names::path::{INTERNAL_REGISTRY_PULL_SECRET, KUBECONFIG, KUBELET_CA};
use crate::ignition::schema::{Config, File};
use crate::ignition::unpacked_size::UnpackBudget;
use crate::reconcile_check::ConfigChange;

/// Files that come with a config and are then kept up to date by the cluster: certificates and the pull
/// secret.
pub(super) const CLUSTER_MANAGED_FILES: [&str; 3] = [
    KUBELET_CA,
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
    INTERNAL_REGISTRY_PULL_SECRET,
];

/// What a change writes: all files but those that the cluster keeps up to date and whose entry in the
/// config does not change, because they may be newer on disk.
pub(super) fn without_cluster_managed_files(
    wanted: &[DesiredPath],
    change: &ConfigChange,
    view: &mut TreeOverlay,
) -> Result<Vec<DesiredPath>, ApplyError> {
    let entry = |config: &Config, path: &str| {
        let mut files = config.storage.files.iter().rev();
        files.find(|file| file.path == path).map(|file| file.contents.clone())
    };
    let mut written = Vec::with_capacity(wanted.len());
    for want in wanted {
        let path = want.path.as_str();
        let is_others = CLUSTER_MANAGED_FILES.contains(&path)
            && entry(&change.old, path) == entry(&change.new, path)
            && matches!(view.original_node(path)?, FsNode::File { .. });
        if !is_others {
            written.push(want.clone());
        }
    }
    Ok(written)
}

/// Which section of a config manages a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManagedPart {
    /// An entry of `storage.files`.
    File,
    /// A unit.
    Unit,
    /// A drop-in of a unit.
    DropIn,
}

/// A path that a config manages.
#[derive(Debug)]
pub struct ManagedPath {
    /// The path as the config or systemd names it.
    pub path: String,
    /// The path with links resolved; `None` if that is not possible.
    pub resolved_path: Option<String>,
    /// Which section of the config manages it.
    pub part: ManagedPart,
    /// What the config wants there.
    pub wanted: FsNode,
    /// What is there, or why that is unknown.
    pub found: Result<FsNode, ApplyError>,
}

/// All paths that a config manages, with what is there.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// Every path, in the order of the config.
    pub managed: Vec<ManagedPath>,
    /// Units whose enablement differs from the config.
    pub enablement: Vec<EnablementMismatch>,
}

/// The contents of a config's files, in its order, and the config without them. Comparisons need only
/// sizes and digests.
pub fn split_contents(mut config: Config) -> Result<(Config, Vec<FileContent>), ApplyError> {
    let mut all = Vec::new();
    let mut budget = UnpackBudget::default();
    for file in config.storage.files.iter_mut() {
        let bytes = budget
            .decode(&file.contents)
            .map_err(|source| ApplyError::Contents { path: file.path.clone(), source })?;
        all.push(FileContent::new(bytes).without_bytes());
        file.contents = Default::default();
    }
    Ok((config, all))
}

/// Compares every path that a config manages. The first two arguments come from [`split_contents`].
#[must_use]
pub fn verify(
    config: &Config,
    contents: &[FileContent],
    tree: &dyn FsTree,
    defaults: HostDefaults,
) -> VerifyReport {
    let mut view = TreeOverlay::new(tree, defaults);
    let mut managed = files(config, contents, &mut view);
    managed.extend(units(config, &mut view));
    let mut managed = last_of_each(managed);
    for one in &managed {
        if let Some(real) = &one.resolved_path {
            view.set(real, one.wanted.clone());
        }
    }
    managed.retain(|one| !CLUSTER_MANAGED_FILES.contains(&one.path.as_str()));
    // A unit that cannot be judged because directories are gone is reported by the files in them.
    let enablement = systemd::enablement_mismatches(config, &mut view).unwrap_or_default();
    VerifyReport { managed, enablement }
}

fn files(config: &Config, contents: &[FileContent], view: &mut TreeOverlay) -> Vec<ManagedPath> {
    // Without a list of users, names are unknown, but IDs are not.
    let names = UserDatabase::read(view).unwrap_or_else(|_| UserDatabase::root_only());
    let look = |(file, content): (&File, &FileContent)| {
        let place = managed_paths::file_location(file, &names, view);
        let mut meta = FileMeta { mode: 0o644, owner: view.defaults.owner };
        let place = place.map(|(real, wanted)| {
            meta = wanted;
            if real == KUBECONFIG {
                // The daemon maintains this file, whatever the config says.
                meta.mode = 0o600;
            }
            real
        });
        let wanted = FsNode::File { meta, content: content.clone() };
        inspect_path(file.path.clone(), ManagedPart::File, wanted, place, view)
    };
    config.storage.files.iter().zip(contents).map(look).collect()
}

fn units(config: &Config, view: &mut TreeOverlay) -> Vec<ManagedPath> {
    let mut all = Vec::new();
    for unit in &config.systemd.units {
        // An invalid name was refused when the config was applied.
        for (path, wanted) in managed_paths::unit_nodes(unit, view).unwrap_or_default() {
            let is_own = path.ends_with(&format!("/{}", unit.name));
            let part = if is_own { ManagedPart::Unit } else { ManagedPart::DropIn };
            let place = view.resolve(&path);
            all.push(inspect_path(path, part, wanted, place, view));
        }
    }
    all
}

fn inspect_path(
    path: String,
    part: ManagedPart,
    wanted: FsNode,
    place: Result<String, ApplyError>,
    view: &mut TreeOverlay,
) -> ManagedPath {
    match place {
        Ok(real) => {
            let found = view.original_node(&real);
            ManagedPath { path, resolved_path: Some(real), part, wanted, found }
        }
        Err(problem) => {
            ManagedPath { path, resolved_path: None, part, wanted, found: Err(problem) }
        }
    }
}

/// If a path is named twice, the last entry wins.
fn last_of_each(all: Vec<ManagedPath>) -> Vec<ManagedPath> {
    let mut seen = BTreeSet::new();
    let place = |one: &ManagedPath| one.resolved_path.clone().unwrap_or_else(|| one.path.clone());
    let mut kept: Vec<ManagedPath> =
        all.into_iter().rev().filter(|one| seen.insert(place(one))).collect();
    kept.reverse();
    kept
}
