//! Which paths a config speaks about, and what it wants there.

use std::collections::BTreeMap;

use super::error::ApplyError;
use super::node::{Content, Meta, Node, Owner};
use super::record::RECORD;
use super::users;
use super::view::View;
use crate::api::names::path::{CURRENT_CONFIG, CURRENT_IMAGE, NO_ORIGINALS, ORIGINALS};
use crate::ignition::contents;
use crate::ignition::schema::{Config, File, Unit};

/// Where units are.
pub(super) const UNITS: &str = "/etc/systemd/system";
/// Where a masked unit points.
pub(super) const NULL: &str = "/dev/null";
/// Files larger than this when decompressed are refused.
pub(super) const LARGEST: u64 = 1 << 30;
/// The journal of the shell; see `docs/daemon.md`.
const JOURNAL: &str = "/etc/.machinist-journal";
/// Other files that the daemon keeps for itself.
const KEPT: &str = "/etc/machine-config-daemon/machinist-";

/// What kind of thing speaks about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// `storage.files`.
    File,
    /// A unit or a drop-in.
    Unit,
}

/// What a config wants at a path.
#[derive(Debug, Clone)]
pub(super) struct Want {
    pub(super) path: String,
    pub(super) origin: Origin,
    pub(super) node: Node,
}

/// The paths that a config manages, where they really lie.
pub(super) fn paths(
    config: &Config,
    view: &mut View,
) -> Result<BTreeMap<String, Origin>, ApplyError> {
    let mut paths = BTreeMap::new();
    for file in &config.storage.files {
        paths.insert(view.resolve(&file.path)?, Origin::File);
    }
    for unit in &config.systemd.units {
        for dropin in &unit.dropins {
            paths.insert(view.resolve(&dropin_path(&unit.name, &dropin.name)?)?, Origin::Unit);
        }
        if manages_unit_path(unit) {
            paths.insert(view.resolve(&unit_path(&unit.name)?)?, Origin::Unit);
        }
    }
    Ok(paths)
}

/// All that a config wants, in its order; a path that is named twice is as the last one says.
pub(super) fn wanted(config: &Config, view: &mut View) -> Result<Vec<Want>, ApplyError> {
    let names = users::Names::read(view)?;
    let mut wants = Vec::new();
    for file in &config.storage.files {
        let (path, meta) = file_place(file, &names, view)?;
        let bytes = contents::decode(&file.contents, LARGEST)
            .map_err(|source| ApplyError::Contents { path: file.path.clone(), source })?;
        let node = Node::File { meta, content: Content::new(bytes) };
        wants.push(Want { path, origin: Origin::File, node });
    }
    for unit in &config.systemd.units {
        for (path, node) in unit_nodes(unit, view)? {
            wants.push(Want { path: view.resolve(&path)?, origin: Origin::Unit, node });
        }
    }
    Ok(wants)
}

/// Where a file really lies, and who may do what with it.
pub(super) fn file_place(
    file: &File,
    names: &users::Names,
    view: &mut View,
) -> Result<(String, Meta), ApplyError> {
    refuse_reserved(&file.path)?;
    let path = view.resolve(&file.path)?;
    refuse_reserved(&path)?;
    let meta = Meta { mode: mode(file), owner: owner(file, names, view.style.owner)? };
    Ok((path, meta))
}

/// What a unit wants: its drop-ins, then its own file, by the paths that systemd knows them by.
pub(super) fn unit_nodes(unit: &Unit, view: &View) -> Result<Vec<(String, Node)>, ApplyError> {
    let mut nodes = Vec::new();
    for dropin in &unit.dropins {
        let node = text_or_nothing(dropin.contents.as_deref(), view);
        nodes.push((dropin_path(&unit.name, &dropin.name)?, node));
    }
    if manages_unit_path(unit) {
        let node = match unit.mask {
            Some(true) => Node::Link { target: NULL.to_owned(), owner: view.style.owner },
            _ => text_or_nothing(unit.contents.as_deref(), view),
        };
        nodes.push((unit_path(&unit.name)?, node));
    }
    Ok(nodes)
}

/// Whether a unit says anything about its own file: its contents, or whether it is masked.
fn manages_unit_path(unit: &Unit) -> bool {
    has_contents(unit) || unit.mask.is_some()
}

/// Whether a unit brings its file.
pub(super) fn has_contents(unit: &Unit) -> bool {
    unit.contents.as_deref().is_some_and(|text| !text.is_empty())
}

fn text_or_nothing(text: Option<&str>, view: &View) -> Node {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Node::Absent };
    let meta = Meta { mode: 0o644, owner: view.style.owner };
    Node::File { meta, content: Content::new(text.as_bytes().to_vec()) }
}

fn mode(file: &File) -> u32 {
    file.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644) & 0o7777
}

/// The number wins over the name; without either, root.
fn owner(file: &File, names: &users::Names, root: Owner) -> Result<Owner, ApplyError> {
    let number =
        |id: i64| u32::try_from(id).map_err(|_| ApplyError::Id { path: file.path.clone(), id });
    let user = file.user.name.as_deref().filter(|name| !name.is_empty());
    let uid = match (file.user.id, user) {
        (Some(id), _) => number(id)?,
        (None, None) => root.uid,
        (None, Some(name)) => names
            .uid(name)
            .ok_or_else(|| ApplyError::User { path: file.path.clone(), name: name.to_owned() })?,
    };
    let group = file.group.name.as_deref().filter(|name| !name.is_empty());
    let gid = match (file.group.id, group) {
        (Some(id), _) => number(id)?,
        (None, None) => root.gid,
        (None, Some(name)) => names
            .gid(name)
            .ok_or_else(|| ApplyError::Group { path: file.path.clone(), name: name.to_owned() })?,
    };
    Ok(Owner { uid, gid })
}

fn refuse_reserved(path: &str) -> Result<(), ApplyError> {
    let below = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let is_own = [CURRENT_CONFIG, CURRENT_IMAGE, RECORD, ORIGINALS, NO_ORIGINALS].contains(&path)
        || below(ORIGINALS)
        || below(NO_ORIGINALS)
        || path.starts_with(JOURNAL)
        || path.starts_with(KEPT);
    if is_own { Err(ApplyError::Reserved { path: path.to_owned() }) } else { Ok(()) }
}

/// The file of a unit.
pub(super) fn unit_path(name: &str) -> Result<String, ApplyError> {
    Ok(format!("{UNITS}/{}", plain(name)?))
}

fn dropin_path(unit: &str, name: &str) -> Result<String, ApplyError> {
    Ok(format!("{UNITS}/{}.d/{}", plain(unit)?, plain(name)?))
}

fn plain(name: &str) -> Result<&str, ApplyError> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(ApplyError::UnitName { name: name.to_owned() });
    }
    Ok(name)
}
