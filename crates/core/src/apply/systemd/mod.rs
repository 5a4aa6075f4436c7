//! What enabling, disabling and presetting units does to the links in `/etc/systemd/system`, as
//! `systemctl --root` would do it.

mod install;
mod links;
mod pattern;
mod preset;
mod search;
mod verify;

use std::collections::{BTreeMap, BTreeSet};

use super::error::ApplyError;
use super::managed::{UNITS, has_contents};
use super::node::Node;
use super::record::Record;
use super::view::View;
use crate::ignition::schema::{Config, Unit};

pub use verify::Enablement;
pub(super) use verify::{foreign_mask, mismatches};

/// The two configs, and what was true before the new units were written.
pub(super) struct Change<'a> {
    pub(super) old: &'a Config,
    pub(super) new: &'a Config,
    /// Units of the new config of which a file is there.
    pub(super) listed: BTreeSet<String>,
    /// Links as they were before units were taken out to be written anew.
    pub(super) enabled: Links,
}

impl Change<'_> {
    /// Whether there is a file of the unit: its own, or one that was there and still is.
    fn is_there(&self, unit: &Unit, view: &mut View) -> Result<bool, ApplyError> {
        let was_there = self.listed.contains(&unit.name);
        Ok(has_contents(unit) || (was_there && search::is_listed(&unit.name, view)?))
    }
}

/// Links by path, with where they point.
type Links = BTreeMap<String, String>;

/// A unit that leaves the config gets its links back as they were before, or, where that is not
/// known, as the presets say.
pub(super) fn release_units(
    old: &Config,
    new: &Config,
    view: &mut View,
    record: &mut Record,
) -> Result<(), ApplyError> {
    let stays: BTreeSet<&str> = new.systemd.units.iter().map(|unit| unit.name.as_str()).collect();
    for unit in &old.systemd.units {
        if stays.contains(unit.name.as_str()) {
            continue;
        }
        let Some(before) = record.units.remove(&unit.name) else {
            // As the real daemon does; that the unit is not known is no error.
            let _ = preset::preset(&unit.name, view)?;
            continue;
        };
        for (path, target) in before {
            match target {
                Some(target) => {
                    let owner = view.style.owner;
                    view.put(&path, Node::Link { target, owner })?;
                }
                None => links::remove(&path, view)?,
            }
        }
    }
    Ok(())
}

/// Which units of the config systemd knows a file of.
pub(super) fn listed(new: &Config, view: &mut View) -> Result<BTreeSet<String>, ApplyError> {
    let mut listed = BTreeSet::new();
    for unit in &new.systemd.units {
        if search::is_listed(&unit.name, view)? {
            listed.insert(unit.name.clone());
        }
    }
    Ok(listed)
}

/// Units that are enabled and get another file, or lose theirs, are disabled first: the new file may
/// say otherwise where they belong. Gives all links as they were.
pub(super) fn before_writing(
    old: &Config,
    new: &Config,
    view: &mut View,
    record: &mut Record,
) -> Result<Links, ApplyError> {
    if new.systemd.units.is_empty() {
        return Ok(Links::new());
    }
    let all = links::all(view)?;
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

/// Enables, disables and presets what the config says, and remembers what was there before.
/// What was left out comes back in words.
pub(super) fn enablement(
    change: &Change,
    view: &mut View,
    record: &mut Record,
) -> Result<Vec<String>, ApplyError> {
    let mut notes = Vec::new();
    let (mut enable, mut disable) = (Vec::new(), Vec::new());
    let mut known = change.enabled.clone();
    for unit in changed(change.old, change.new) {
        match unit.enabled {
            None => {
                let count = view.changed();
                // A drop-in may be for a unit that is not there: no error.
                let _ = preset::preset(&unit.name, view)?;
                if view.changed() != count {
                    remember(&unit.name, &mut known, view, record)?;
                }
            }
            Some(wanted) if change.is_there(unit, view)? => {
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
        (enable, install::enable as fn(&[&str], &mut View) -> Result<install::Done, ApplyError>),
        (disable, install::disable),
    ] {
        for name in names {
            let count = view.changed();
            how(&[name], view)?.map_err(|problem| ApplyError::Enable { problem })?;
            if view.changed() != count {
                remember(name, &mut known, view, record)?;
            }
        }
    }
    Ok(notes)
}

/// Enables and disables what the config says as if every unit of it were new. Those of which it says
/// nothing are left alone.
pub(super) fn enable_again(
    config: &Config,
    view: &mut View,
    record: &mut Record,
) -> Result<Vec<String>, ApplyError> {
    let old = Config::default();
    let mut new = Config::default();
    for unit in config.systemd.units.iter().filter(|unit| unit.enabled.is_some()) {
        new.systemd.units.push(unit.clone());
    }
    let (listed, enabled) = (listed(&new, view)?, links::all(view)?);
    enablement(&Change { old: &old, new: &new, listed, enabled }, view, record)
}

/// Links that changed belong to the unit for which they did.
fn remember(
    unit: &str,
    known: &mut Links,
    view: &mut View,
    record: &mut Record,
) -> Result<(), ApplyError> {
    let now = links::all(view)?;
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

/// The units of the new config that the old one does not have just so.
fn changed<'a>(old: &'a Config, new: &'a Config) -> impl Iterator<Item = &'a Unit> {
    let known: BTreeMap<&str, &Unit> =
        old.systemd.units.iter().map(|unit| (unit.name.as_str(), unit)).collect();
    new.systemd.units.iter().filter(move |unit| known.get(unit.name.as_str()) != Some(unit))
}

/// The last part of a path.
fn base(path: &str) -> &str {
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

/// Whether a name is one of a unit.
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

/// The real place of the folder of units.
fn units_folder(view: &mut View) -> Result<String, ApplyError> {
    let below = view.resolve(&format!("{UNITS}/x"))?;
    Ok(super::view::folder_of(&below).to_owned())
}
