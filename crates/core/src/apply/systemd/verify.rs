//! Compares the enablement of units with a config.

use std::collections::BTreeSet;

use super::super::error::ApplyError;
use super::super::fs_node::FsNode;
use super::super::managed_paths::{DEV_NULL, UNITS_DIR, has_contents};
use super::super::overlay::TreeOverlay;
use super::{file_name, install, links, search, template_of};
use crate::ignition::schema::{Config, Unit};

/// A unit whose enablement differs from the config.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnablementMismatch {
    /// The unit.
    pub unit: String,
    /// The link that shows it.
    pub path: String,
    /// Whether the unit should be enabled.
    pub wanted: bool,
    /// What systemd reports: `enabled`, `disabled` or `masked`.
    pub found: &'static str,
}

/// Units whose enablement differs from the config. The view contains the files that the config wants, so
/// that a unit with a changed file is judged by the file it should have.
pub(in super::super) fn enablement_mismatches(
    config: &Config,
    view: &mut TreeOverlay,
) -> Result<Vec<EnablementMismatch>, ApplyError> {
    let units: Vec<&Unit> =
        config.systemd.units.iter().filter(|unit| unit.enabled.is_some()).collect();
    if units.is_empty() {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    let before = links::all_unit_links(view)?;
    for unit in units.iter().filter(|unit| unit.enabled == Some(true)) {
        if let Some(path) = foreign_mask(unit, view)? {
            let unit = unit.name.clone();
            all.push(EnablementMismatch { unit, path, wanted: true, found: "masked" });
        } else if has_unit_file(unit, view)? {
            let _ = install::enable(&[&unit.name], view)?;
        }
    }
    for unit in units.iter().filter(|unit| unit.enabled == Some(false)) {
        if has_unit_file(unit, view)? {
            let _ = install::disable(&[&unit.name], view)?;
        }
    }
    let after = links::all_unit_links(view)?;
    let mut seen = BTreeSet::new();
    for path in before.keys().chain(after.keys()) {
        let (had, has) = (before.get(path), after.get(path));
        if had == has || !seen.insert(path) {
            continue;
        }
        let names: BTreeSet<String> = [Some(path), had, has]
            .into_iter()
            .flatten()
            .map(|path| file_name(path))
            .flat_map(|name| template_of(name).into_iter().chain([name.to_owned()]))
            .collect();
        let unit = units.iter().find(|unit| names.contains(&unit.name));
        let unit = unit.map_or(file_name(path), |unit| unit.name.as_str()).to_owned();
        let found = if has.is_some() { "disabled" } else { "enabled" };
        if !all.iter().any(|one: &EnablementMismatch| one.unit == unit && one.found == found) {
            all.push(EnablementMismatch { unit, path: path.clone(), wanted: has.is_some(), found });
        }
    }
    Ok(all)
}

/// The link with which someone masked a unit that should be enabled and whose file the config does not
/// manage.
pub(in super::super) fn foreign_mask(
    unit: &Unit,
    view: &mut TreeOverlay,
) -> Result<Option<String>, ApplyError> {
    if unit.enabled != Some(true) || unit.mask.is_some() || has_contents(unit) {
        return Ok(None);
    }
    let path = view.resolve(&format!("{UNITS_DIR}/{}", unit.name))?;
    let is_mask = matches!(view.node(&path)?, FsNode::Link { target, .. } if target == DEV_NULL);
    Ok(is_mask.then_some(path))
}

fn has_unit_file(unit: &Unit, view: &mut TreeOverlay) -> Result<bool, ApplyError> {
    Ok(has_contents(unit) || search::has_unit_file(&unit.name, view)?)
}
