//! The links below the directory of units.

use std::collections::{BTreeMap, BTreeSet};

use super::super::error::ApplyError;
use super::super::fs_node::FsNode;
use super::super::overlay::{TreeOverlay, parent_dir};
use super::{file_name, is_unit_name, template_of};

/// All links with the name of a unit, with their targets.
pub(super) fn all_unit_links(
    view: &mut TreeOverlay,
) -> Result<BTreeMap<String, String>, ApplyError> {
    let mut found = BTreeMap::new();
    let mut directories = vec![super::units_dir(view)?];
    while let Some(directory) = directories.pop() {
        for name in view.entries(&directory)? {
            let path = format!("{directory}/{name}");
            match view.node(&path)? {
                FsNode::Directory { .. } => directories.push(path),
                FsNode::Link { target, .. } if is_unit_name(&name) => {
                    found.insert(path, target);
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Whether `systemctl is-enabled` would print `enabled`.
pub(super) fn is_enabled(unit: &str, links: &BTreeMap<String, String>) -> bool {
    links.iter().any(|(path, target)| {
        let directory = parent_dir(path);
        let is_dependency = directory.ends_with(".wants") || directory.ends_with(".requires");
        let is_alias = !is_dependency && file_name(path) != unit;
        (is_dependency && (file_name(path) == unit || file_name(target) == unit))
            || (is_alias && file_name(target) == unit)
    })
}

/// Removes every link that has the name of a unit or points to it.
pub(super) fn remove_links_to(
    units: &BTreeSet<String>,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    for (path, target) in all_unit_links(view)? {
        // The link of a masked unit is left alone.
        let is_mask = target == "/dev/null";
        // A template includes its instances.
        let template = template_of(file_name(&path));
        let is_named = units.contains(file_name(&path))
            || template.is_some_and(|template| units.contains(&template));
        if !is_mask && (is_named || units.contains(file_name(&target))) {
            remove_link(&path, view)?;
        }
    }
    Ok(())
}

/// Removes a link, and its directory if it is empty then.
pub(super) fn remove_link(path: &str, view: &mut TreeOverlay) -> Result<(), ApplyError> {
    if matches!(view.node(path)?, FsNode::Link { .. }) {
        view.set(path, FsNode::Absent);
    }
    let (directory, top) = (parent_dir(path).to_owned(), super::units_dir(view)?);
    let is_below = directory.len() > top.len() && directory.starts_with(&top);
    if is_below
        && matches!(view.node(&directory)?, FsNode::Directory { .. })
        && view.entries(&directory)?.is_empty()
    {
        view.set(&directory, FsNode::Absent);
    }
    Ok(())
}

/// Creates a link, unless one with the same destination is there.
pub(super) fn make_link(
    path: &str,
    target: &str,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    let path = view.resolve(path)?;
    if let FsNode::Link { target: found, .. } = view.node(&path)?
        && is_same_file(&found, target, view)
    {
        return Ok(());
    }
    let owner = view.defaults.owner;
    view.set_with_parents(&path, FsNode::Link { target: target.to_owned(), owner })
}

/// Whether two targets are the same file, even if `/lib` is a link.
fn is_same_file(a: &str, b: &str, view: &mut TreeOverlay) -> bool {
    a == b || matches!((view.resolve(a), view.resolve(b)), (Ok(a), Ok(b)) if a == b)
}
