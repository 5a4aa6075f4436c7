//! Which paths a config manages, and what it wants there.

use std::collections::BTreeMap;

use super::baseline::BASELINE_PATH;
use super::error::ApplyError;
use super::fs_node::{FileContent, FileMeta, FileOwner, FsNode};
use super::overlay::TreeOverlay;
use super::{derived_files, originals, users};
use crate::api::names::path::{CURRENT_CONFIG, CURRENT_IMAGE, NO_ORIGINALS, ORIGINALS};
use crate::ignition::schema::{Config, File, Unit};
use crate::ignition::unpacked_size::UnpackBudget;

/// The directory of unit files.
pub(super) const UNITS_DIR: &str = "/etc/systemd/system";
/// Where a masked unit points.
pub(super) const DEV_NULL: &str = "/dev/null";
/// The journal of the daemon; see `docs/daemon.md`.
const JOURNAL: &str = "/etc/.machinist-journal";
/// Other files that belong to the daemon.
const DAEMON_FILES_PREFIX: &str = "/etc/machine-config-daemon/machinist-";

/// Which section of a config manages a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathOrigin {
    /// `storage.files`.
    File,
    /// A unit or a drop-in.
    Unit,
}

/// What a config wants at a path.
#[derive(Debug, Clone)]
pub(super) struct DesiredPath {
    pub(super) path: String,
    pub(super) origin: PathOrigin,
    pub(super) node: FsNode,
}

/// The paths that a config manages, with links resolved.
pub(super) fn managed_paths(
    config: &Config,
    view: &mut TreeOverlay,
) -> Result<BTreeMap<String, PathOrigin>, ApplyError> {
    let mut paths = BTreeMap::new();
    for file in &config.storage.files {
        paths.insert(view.resolve(&file.path)?, PathOrigin::File);
    }
    for unit in &config.systemd.units {
        for dropin in &unit.dropins {
            paths.insert(view.resolve(&dropin_path(&unit.name, &dropin.name)?)?, PathOrigin::Unit);
        }
        if manages_unit_path(unit) {
            paths.insert(view.resolve(&unit_path(&unit.name)?)?, PathOrigin::Unit);
        }
    }
    // Files of an earlier version of the host are released even if it has no containerd any more.
    for file in derived_files::derived_files(config).0 {
        let path = view.resolve(&file.path)?;
        if view.defaults.has_containerd || originals::is_taken_over(&path, view)? {
            paths.entry(path).or_insert(PathOrigin::File);
        }
    }
    Ok(paths)
}

/// Everything a config wants, in its order. If a path is named twice, the last entry wins.
pub(super) fn desired_paths(
    config: &Config,
    view: &mut TreeOverlay,
) -> Result<Vec<DesiredPath>, ApplyError> {
    let names = users::UserDatabase::read(view)?;
    let mut wants = Vec::new();
    let mut budget = UnpackBudget::default();
    for file in &config.storage.files {
        wants.push(desired_file(file, &names, &mut budget, view)?);
    }
    if view.defaults.has_containerd {
        for file in derived_files::derived_files(config).0 {
            let (path, meta) =
                (view.resolve(&file.path)?, FileMeta { mode: 0o644, owner: view.defaults.owner });
            // A file of the config itself counts more.
            if !wants.iter().any(|want| want.path == path) {
                let node = FsNode::File { meta, content: FileContent::new(file.text.into_bytes()) };
                wants.push(DesiredPath { path, origin: PathOrigin::File, node });
            }
        }
    }
    for unit in &config.systemd.units {
        for (path, node) in unit_nodes(unit, view)? {
            wants.push(DesiredPath { path: view.resolve(&path)?, origin: PathOrigin::Unit, node });
        }
    }
    Ok(wants)
}

/// The same for a repair: what cannot be determined is a problem of its own, and left out.
pub(super) fn readable_desired_paths(
    config: &Config,
    view: &mut TreeOverlay,
    problems: &mut Vec<ApplyError>,
) -> Vec<DesiredPath> {
    // Without a list of users, names are unknown, but IDs are not.
    let names = users::UserDatabase::read(view);
    let names = names.unwrap_or_else(|_| users::UserDatabase::root_only());
    let mut wants = Vec::new();
    let mut budget = UnpackBudget::default();
    for file in &config.storage.files {
        match desired_file(file, &names, &mut budget, view) {
            Ok(want) => wants.push(want),
            Err(problem) => problems.push(problem),
        }
    }
    for unit in &config.systemd.units {
        // An invalid name was refused when the config was applied.
        for (path, node) in unit_nodes(unit, view).unwrap_or_default() {
            match view.resolve(&path) {
                Ok(path) => wants.push(DesiredPath { path, origin: PathOrigin::Unit, node }),
                Err(problem) => problems.push(problem),
            }
        }
    }
    wants
}

fn desired_file(
    file: &File,
    names: &users::UserDatabase,
    budget: &mut UnpackBudget,
    view: &mut TreeOverlay,
) -> Result<DesiredPath, ApplyError> {
    let (path, meta) = file_location(file, names, view)?;
    let bytes = budget
        .decode(&file.contents)
        .map_err(|source| ApplyError::Contents { path: file.path.clone(), source })?;
    let node = FsNode::File { meta, content: FileContent::new(bytes) };
    Ok(DesiredPath { path, origin: PathOrigin::File, node })
}

/// The resolved path of a file, its permissions and its owner.
pub(super) fn file_location(
    file: &File,
    names: &users::UserDatabase,
    view: &mut TreeOverlay,
) -> Result<(String, FileMeta), ApplyError> {
    refuse_reserved(&file.path)?;
    let path = view.resolve(&file.path)?;
    refuse_reserved(&path)?;
    let meta = FileMeta { mode: mode(file), owner: owner(file, names, view.defaults.owner)? };
    Ok((path, meta))
}

/// What a unit wants: its drop-ins, then its own file, by the paths that systemd uses.
pub(super) fn unit_nodes(
    unit: &Unit,
    view: &TreeOverlay,
) -> Result<Vec<(String, FsNode)>, ApplyError> {
    let mut nodes = Vec::new();
    for dropin in &unit.dropins {
        let node = text_or_absent(dropin.contents.as_deref(), view);
        nodes.push((dropin_path(&unit.name, &dropin.name)?, node));
    }
    if manages_unit_path(unit) {
        let node = match unit.mask {
            Some(true) => FsNode::Link { target: DEV_NULL.to_owned(), owner: view.defaults.owner },
            _ => text_or_absent(unit.contents.as_deref(), view),
        };
        nodes.push((unit_path(&unit.name)?, node));
    }
    Ok(nodes)
}

/// Whether a unit manages its own file: contents, or a mask.
fn manages_unit_path(unit: &Unit) -> bool {
    has_contents(unit) || unit.mask.is_some()
}

/// Whether a unit has contents.
pub(super) fn has_contents(unit: &Unit) -> bool {
    unit.contents.as_deref().is_some_and(|text| !text.is_empty())
}

fn text_or_absent(text: Option<&str>, view: &TreeOverlay) -> FsNode {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return FsNode::Absent };
    let meta = FileMeta { mode: 0o644, owner: view.defaults.owner };
    FsNode::File { meta, content: FileContent::new(text.as_bytes().to_vec()) }
}

fn mode(file: &File) -> u32 {
    file.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644) & 0o7777
}

/// The ID wins over the name; root is the default.
fn owner(
    file: &File,
    names: &users::UserDatabase,
    root: FileOwner,
) -> Result<FileOwner, ApplyError> {
    let number = |id: i64| {
        u32::try_from(id).map_err(|_| ApplyError::InvalidId { path: file.path.clone(), id })
    };
    let user = file.user.name.as_deref().filter(|name| !name.is_empty());
    let uid = match (file.user.id, user) {
        (Some(id), _) => number(id)?,
        (None, None) => root.uid,
        (None, Some(name)) => names.uid(name).ok_or_else(|| ApplyError::UnknownUser {
            path: file.path.clone(),
            name: name.to_owned(),
        })?,
    };
    let group = file.group.name.as_deref().filter(|name| !name.is_empty());
    let gid = match (file.group.id, group) {
        (Some(id), _) => number(id)?,
        (None, None) => root.gid,
        (None, Some(name)) => names.gid(name).ok_or_else(|| ApplyError::UnknownGroup {
            path: file.path.clone(),
            name: name.to_owned(),
        })?,
    };
    Ok(FileOwner { uid, gid })
}

fn refuse_reserved(path: &str) -> Result<(), ApplyError> {
    let below =
        |directory: &str| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
    let is_own = [CURRENT_CONFIG, CURRENT_IMAGE, BASELINE_PATH, ORIGINALS, NO_ORIGINALS]
        .contains(&path)
        || below(ORIGINALS)
        || below(NO_ORIGINALS)
        || path.starts_with(JOURNAL)
        || path.starts_with(DAEMON_FILES_PREFIX);
    if is_own { Err(ApplyError::ReservedPath { path: path.to_owned() }) } else { Ok(()) }
}

/// The path of a unit file.
pub(super) fn unit_path(name: &str) -> Result<String, ApplyError> {
    Ok(format!("{UNITS_DIR}/{}", plain_file_name(name)?))
}

fn dropin_path(unit: &str, name: &str) -> Result<String, ApplyError> {
    Ok(format!("{UNITS_DIR}/{}.d/{}", plain_file_name(unit)?, plain_file_name(name)?))
}

fn plain_file_name(name: &str) -> Result<&str, ApplyError> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(ApplyError::InvalidUnitName { name: name.to_owned() });
    }
    Ok(name)
}
