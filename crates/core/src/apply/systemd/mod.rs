//! What enabling, disabling and presetting units does to the links in `/etc/systemd/system`, as
//! `systemctl --root` would do it.

mod install;
mod links;
mod pattern;
mod preset;
mod search;
mod verify;

use std::collections::{BTreeMap, BTreeSet};

use super::baseline::HostBaseline;
use super::error::ApplyError;
use super::fs_node::FsNode;
use super::managed_paths::{UNITS_DIR, has_contents};
use super::overlay::TreeOverlay;
use crate::ignition::schema::{Config, Unit};

pub use verify::EnablementMismatch;
pub(super) use verify::{enablement_mismatches, foreign_mask};

/// The two configs, and what was true before the new units were written.
pub(super) struct UnitsChange<'a> {
    pub(super) old: &'a Config,
    pub(super) new: &'a Config,
    /// Units of the new config that have a file.
    pub(super) with_files: BTreeSet<String>,
    /// Links as they were before units were disabled to be rewritten.
    pub(super) links_before: UnitLinks,
}

impl UnitsChange<'_> {
    /// Whether the unit has a file: its own, one of the host, or that of its template in the same config.
    fn has_unit_file(&self, unit: &Unit, view: &mut TreeOverlay) -> Result<bool, ApplyError> {
        let was_there = self.with_files.contains(&unit.name) || self.writes_template_of(unit);
        Ok(has_contents(unit) || (was_there && search::has_unit_file(&unit.name, view)?))
    }

    fn writes_template_of(&self, unit: &Unit) -> bool {
        let Some(template) = template_of(&unit.name) else { return false };
        self.new.systemd.units.iter().any(|other| other.name == template && has_contents(other))
    }
}

/// Links by path, with their targets.
type UnitLinks = BTreeMap<String, String>;

/// Restores the links of a unit that leaves the config, or applies the presets if the previous links are
/// not known.
pub(super) fn release_units(
    old: &Config,
    new: &Config,
    view: &mut TreeOverlay,
    record: &mut HostBaseline,
) -> Result<(), ApplyError> {
    let stays: BTreeSet<&str> = new.systemd.units.iter().map(|unit| unit.name.as_str()).collect();
    for unit in &old.systemd.units {
        if stays.contains(unit.name.as_str()) {
            continue;
        }
        let Some(before) = record.units.remove(&unit.name) else {
            // As MCO does. An unknown unit is not an error.
            let _ = preset::apply_preset(&unit.name, view)?;
            continue;
        };
        for (path, target) in before {
            match target {
                Some(target) => {
                    let owner = view.defaults.owner;
                    view.set_with_parents(&path, FsNode::Link { target, owner })?;
                }
                None => links::remove_link(&path, view)?,
            }
        }
    }
    Ok(())
}

/// The units of the config for which systemd finds a file.
pub(super) fn units_with_files(
    new: &Config,
    view: &mut TreeOverlay,
) -> Result<BTreeSet<String>, ApplyError> {
    let mut listed = BTreeSet::new();
    for unit in &new.systemd.units {
        if search::has_unit_file(&unit.name, view)? {
            listed.insert(unit.name.clone());
        }
    }
    Ok(listed)
}

/// Disables units that are enabled and get another file or lose theirs: the new file may have another
/// `[Install]` section. Returns all links as they were.
pub(super) fn disable_before_rewrite(
    old: &Config,
    new: &Config,
    view: &mut TreeOverlay,
    record: &mut HostBaseline,
) -> Result<UnitLinks, ApplyError> {
    if new.systemd.units.is_empty() {
        return Ok(UnitLinks::new());
    }
    let all = links::all_unit_links(view)?;
    let had_contents: BTreeSet<&str> = old
        .systemd
        .units
        .iter()
        .filter(|unit| has_contents(unit))
        .map(|unit| unit.name.as_str())
        .collect();
    for unit in changed(old, new) {
        record.units.entry(unit.name.clone()).or_default();
        let is_masked = unit.mask == Some(true);
        let is_written = has_contents(unit) || had_contents.contains(unit.name.as_str());
        if is_written && !is_masked && links::is_enabled(&unit.name, &all) {
            let _ = install::disable(&[&unit.name], view)?;
        }
    }
    Ok(all)
}

/// Enables, disables and presets units as the config says, and records the previous links. Returns notes
/// about what was left out.
pub(super) fn apply_enablement(
    change: &UnitsChange,
    view: &mut TreeOverlay,
    record: &mut HostBaseline,
) -> Result<Vec<String>, ApplyError> {
    let mut notes = Vec::new();
    let (mut enable, mut disable) = (Vec::new(), Vec::new());
    let mut known = change.links_before.clone();
    for unit in changed(change.old, change.new) {
        match unit.enabled {
            None => {
                let count = view.change_count();
                // A drop-in may be for a unit that does not exist: not an error.
                let _ = preset::apply_preset(&unit.name, view)?;
                if view.change_count() != count {
                    record_link_changes(&unit.name, &mut known, view, record)?;
                }
            }
            Some(wanted) if change.has_unit_file(unit, view)? => {
                if wanted { &mut enable } else { &mut disable }.push(unit.name.as_str());
            }
            Some(wanted) => notes.push(format!(
                "unit {:?} could not be {}: it has no contents and is not on the machine",
                unit.name,
                if wanted { "enabled" } else { "disabled" }
            )),
        }
    }
    for (names, how) in [
        (
            enable,
            install::enable
                as fn(&[&str], &mut TreeOverlay) -> Result<install::SystemctlResult, ApplyError>,
        ),
        (disable, install::disable),
    ] {
        for name in names {
            let count = view.change_count();
            how(&[name], view)?.map_err(|problem| ApplyError::UnitEnablement { problem })?;
            if view.change_count() != count {
                record_link_changes(name, &mut known, view, record)?;
            }
        }
    }
    Ok(notes)
}

/// Enables and disables units as if all of them were new. Units without `enabled` are left alone.
pub(super) fn reapply_enablement(
    config: &Config,
    view: &mut TreeOverlay,
    record: &mut HostBaseline,
) -> Result<Vec<String>, ApplyError> {
    let old = Config::default();
    let mut new = Config::default();
    for unit in config.systemd.units.iter().filter(|unit| unit.enabled.is_some()) {
        new.systemd.units.push(unit.clone());
    }
    let (listed, enabled) = (units_with_files(&new, view)?, links::all_unit_links(view)?);
    apply_enablement(
        &UnitsChange { old: &old, new: &new, with_files: listed, links_before: enabled },
        view,
        record,
    )
}

/// Assigns changed links to the unit that changed them.
fn record_link_changes(
    unit: &str,
    known: &mut UnitLinks,
    view: &mut TreeOverlay,
    record: &mut HostBaseline,
) -> Result<(), ApplyError> {
    let now = links::all_unit_links(view)?;
    let paths: BTreeSet<&String> = known.keys().chain(now.keys()).collect();
    for path in paths {
        let (before, after) = (known.get(path), now.get(path));
        let is_recorded = record.units.values().any(|links| links.contains_key(path));
        if before != after && !is_recorded {
            let links = record.units.entry(unit.to_owned()).or_default();
            links.insert(path.clone(), before.cloned());
        }
    }
    *known = now;
    Ok(())
}

/// The units of the new config that the old one does not have in the same form.
fn changed<'a>(old: &'a Config, new: &'a Config) -> impl Iterator<Item = &'a Unit> {
    let known: BTreeMap<&str, &Unit> =
        old.systemd.units.iter().map(|unit| (unit.name.as_str(), unit)).collect();
    new.systemd.units.iter().filter(move |unit| known.get(unit.name.as_str()) != Some(unit))
}

/// The last component of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// `a@.service` for `a@b.service`.
fn template_of(name: &str) -> Option<String> {
    let (prefix, rest) = name.split_once('@')?;
    let (instance, suffix) = rest.rsplit_once('.')?;
    (!instance.is_empty()).then(|| format!("{prefix}@.{suffix}"))
}

/// Whether a name is that of a template.
fn is_template(name: &str) -> bool {
    name.split_once('@').is_some_and(|(_, rest)| rest.starts_with('.'))
}

/// Whether a name is a valid unit name.
fn is_unit_name(name: &str) -> bool {
    let Some((stem, suffix)) = name.rsplit_once('.') else { return false };
    let kinds = [
        "service",
        "socket",
        "target",
        "device",
        "mount",
        "automount",
        "swap",
        "timer",
        "path",
        "slice",
        "scope",
    ];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    !stem.is_empty() && kinds.contains(&suffix) && name.len() < 256 && stem.chars().all(is_plain)
}

/// The directory of units, with links resolved.
fn units_dir(view: &mut TreeOverlay) -> Result<String, ApplyError> {
    let below = view.resolve(&format!("{UNITS_DIR}/x"))?;
    Ok(super::overlay::parent_dir(&below).to_owned())
}
