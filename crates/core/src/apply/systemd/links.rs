//! The links below the folder of units.

use std::collections::{BTreeMap, BTreeSet};

use super::super::error::ApplyError;
use super::super::node::Node;
use super::super::view::{View, folder_of};
use super::{base, is_unit_name, template_of};

/// All links that bear the name of a unit, with where they point.
pub(super) fn all(view: &mut View) -> Result<BTreeMap<String, String>, ApplyError> {
    let mut found = BTreeMap::new();
    let mut folders = vec![super::units_folder(view)?];
    while let Some(folder) = folders.pop() {
        for name in view.names(&folder)? {
            let path = format!("{folder}/{name}");
            match view.node(&path)? {
                Node::Folder { .. } => folders.push(path),
                Node::Link { target, .. } if is_unit_name(&name) => {
                    found.insert(path, target);
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Whether `systemctl is-enabled` would say that a unit is enabled.
pub(super) fn is_enabled(unit: &str, links: &BTreeMap<String, String>) -> bool {
    links.iter().any(|(path, target)| {
        let folder = folder_of(path);
        let is_dependency = folder.ends_with(".wants") || folder.ends_with(".requires");
        let is_alias = !is_dependency && base(path) != unit;
        (is_dependency && (base(path) == unit || base(target) == unit))
            || (is_alias && base(target) == unit)
    })
}

/// Removes every link that is named like one of the units or points to one of them.
pub(super) fn remove_to(units: &BTreeSet<String>, view: &mut View) -> Result<(), ApplyError> {
    for (path, target) in all(view)? {
        // A masked unit is none of these; its link is left alone.
        let is_mask = target == "/dev/null";
        // A template takes its instances along.
        let template = template_of(base(&path));
        let is_named = units.contains(base(&path))
            || template.is_some_and(|template| units.contains(&template));
        if !is_mask && (is_named || units.contains(base(&target))) {
            remove(&path, view)?;
        }
    }
    Ok(())
}

/// Removes a link, and its folder when that is empty then.
pub(super) fn remove(path: &str, view: &mut View) -> Result<(), ApplyError> {
    if matches!(view.node(path)?, Node::Link { .. }) {
        view.set(path, Node::Absent);
    }
    let (folder, top) = (folder_of(path).to_owned(), super::units_folder(view)?);
    let is_below = folder.len() > top.len() && folder.starts_with(&top);
    if is_below
        && matches!(view.node(&folder)?, Node::Folder { .. })
        && view.names(&folder)?.is_empty()
    {
        view.set(&folder, Node::Absent);
    }
    Ok(())
}

/// Makes a link, unless one is there that leads to the same place.
pub(super) fn make(path: &str, target: &str, view: &mut View) -> Result<(), ApplyError> {
    let path = view.resolve(path)?;
    if let Node::Link { target: found, .. } = view.node(&path)?
        && is_same(&found, target, view)
    {
        return Ok(());
    }
    let owner = view.style.owner;
    view.put(&path, Node::Link { target: target.to_owned(), owner })
}

/// Whether two targets are the same file, also where `/lib` is a link.
fn is_same(a: &str, b: &str, view: &mut View) -> bool {
    a == b || matches!((view.resolve(a), view.resolve(b)), (Ok(a), Ok(b)) if a == b)
}
