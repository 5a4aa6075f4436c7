//! Presets: what vendor and administrator want for a unit that no config mentions.

use std::collections::BTreeMap;

use super::super::error::ApplyError;
use super::super::fs_node::FsNode;
use super::super::overlay::{TreeOverlay, parent_dir};
use super::install::{self, SystemctlResult};
use super::search::find_unit;
use super::{is_template, pattern, template_of};

/// Where presets are. The first directory that has a file of some name wins.
const PRESET_DIRS: [&str; 4] = [
    "/etc/systemd/system-preset",
    "/usr/local/lib/systemd/system-preset",
    "/lib/systemd/system-preset",
    "/usr/lib/systemd/system-preset",
];

/// What the presets say about a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PresetAction {
    /// Enabled; a template, with these instances.
    Enable(Vec<String>),
    /// Disabled.
    Disable,
}

/// Enables or disables a unit as the presets say. Returns what systemctl would print if it cannot.
pub(super) fn apply_preset(
    name: &str,
    view: &mut TreeOverlay,
) -> Result<SystemctlResult, ApplyError> {
    let Some(found) = find_unit(name, view)? else {
        return Ok(Err(format!("Unit file {name} does not exist.")));
    };
    if found.is_masked {
        return Ok(Err(format!("Unit file {} is masked.", found.path)));
    }
    // Presets ignore aliases.
    if found.name != name {
        return Ok(Ok(()));
    }
    match preset_action(name, view)? {
        PresetAction::Disable => install::disable(&[name], view),
        PresetAction::Enable(instances) if instances.is_empty() => {
            install::enable_for_preset(&[name], view)
        }
        PresetAction::Enable(instances) => {
            let names: Vec<&str> = instances.iter().map(String::as_str).collect();
            install::enable_for_preset(&names, view)
        }
    }
}

fn preset_action(name: &str, view: &mut TreeOverlay) -> Result<PresetAction, ApplyError> {
    let mut files = BTreeMap::new();
    for directory in PRESET_DIRS {
        let place = view.resolve(&format!("{directory}/x"))?;
        let place = parent_dir(&place).to_owned();
        if !matches!(view.node(&place)?, FsNode::Directory { .. }) {
            continue;
        }
        for file in view.entries(&place)? {
            if file.ends_with(".preset") && !files.contains_key(&file) {
                files.insert(file.clone(), view.text(&format!("{place}/{file}"))?);
            }
        }
    }
    let rules = files.values().flatten().flat_map(|text| text.lines());
    Ok(rules
        .filter_map(|line| parse_preset_line(line, name))
        .next()
        .unwrap_or(PresetAction::Enable(Vec::new())))
}

/// What one line says about a unit, if anything.
fn parse_preset_line(line: &str, name: &str) -> Option<PresetAction> {
    let mut words = line.split_whitespace();
    let verb = words.next().filter(|word| !word.starts_with(['#', ';']))?;
    let glob = words.next()?;
    let instances: Vec<&str> = words.collect();
    // A rule for a template may name its instances.
    let is_instance = template_of(name).is_some_and(|template| template == glob)
        && instances.iter().any(|instance| name.contains(&format!("@{instance}.")));
    let matches = is_instance || pattern::matches(glob, name);
    match verb {
        _ if !matches => None,
        "enable" if is_template(name) => Some(PresetAction::Enable(
            instances.iter().map(|it| name.replacen("@.", &format!("@{it}."), 1)).collect(),
        )),
        "enable" => Some(PresetAction::Enable(Vec::new())),
        "disable" => Some(PresetAction::Disable),
        _ => None,
    }
}
