//! Enabling and disabling: what `systemctl enable` and `systemctl disable` do.

use std::collections::{BTreeSet, VecDeque};

use super::super::error::ApplyError;
use super::super::fs_node::FsNode;
use super::super::overlay::TreeOverlay;
use super::search::{UnitFile, find_unit};
use super::{UNITS_DIR, is_template, is_unit_name, links};

/// Success, or what systemctl would print.
pub(super) type SystemctlResult = Result<(), String>;

/// Enables units: creates the links of their `[Install]` sections.
pub(super) fn enable(
    names: &[&str],
    view: &mut TreeOverlay,
) -> Result<SystemctlResult, ApplyError> {
    install(names, false, view)
}

/// Enables units for a preset, which skips what is not possible.
pub(super) fn enable_for_preset(
    names: &[&str],
    view: &mut TreeOverlay,
) -> Result<SystemctlResult, ApplyError> {
    install(names, true, view)
}

fn install(
    names: &[&str],
    is_preset: bool,
    view: &mut TreeOverlay,
) -> Result<SystemctlResult, ApplyError> {
    let mut queue: VecDeque<(String, bool)> =
        names.iter().map(|name| ((*name).to_owned(), false)).collect();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    while let Some((name, is_also)) = queue.pop_front() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let found = find_unit(&name, view)?;
        let problem = match &found {
            None => Some(format!("Failed to enable unit: Unit file {name} does not exist.")),
            Some(found) if found.is_masked => {
                Some(format!("Failed to enable unit: Unit file {} is masked.", found.path))
            }
            Some(_) => None,
        };
        match (found, problem) {
            (Some(found), None) => {
                if let Err(problem) = make_links(&found, is_preset, view)? {
                    return Ok(Err(problem));
                }
                queue.extend(found.install.also.into_iter().map(|name| (name, true)));
            }
            (_, Some(_)) if is_also => {}
            (_, problem) => return Ok(Err(problem.unwrap_or_default())),
        }
    }
    Ok(Ok(()))
}

fn make_links(
    found: &UnitFile,
    is_preset: bool,
    view: &mut TreeOverlay,
) -> Result<SystemctlResult, ApplyError> {
    let install = &found.install;
    for alias in &install.alias {
        let mut alias = expand_specifiers(alias, &found.name);
        // The alias of an instance is an instance too.
        if let Some(instance) = instance_of(&found.name)
            && is_template(&alias)
        {
            alias = alias.replacen("@.", &format!("@{instance}."), 1);
        }
        if !is_unit_name(&alias) || !is_valid_alias(&alias, &found.name) {
            if is_preset {
                continue;
            }
            return Ok(Err(format!("Failed to enable unit: Invalid alias {alias:?}.")));
        }
        let path = view.resolve(&format!("{UNITS_DIR}/{alias}"))?;
        if alias == found.name {
            continue;
        }
        if matches!(view.node(&path)?, FsNode::File { .. }) {
            return Ok(Err(format!("Failed to enable unit: File {path} already exists.")));
        }
        links::make_link(&path, &found.path, view)?;
    }
    let name = match &install.default_instance {
        Some(instance) if is_template(&found.name) => {
            found.name.replacen("@.", &format!("@{instance}."), 1)
        }
        _ => found.name.clone(),
    };
    let wants = install.wanted_by.iter().map(|unit| (unit, "wants"));
    let requires = install.required_by.iter().map(|unit| (unit, "requires"));
    for (unit, kind) in wants.chain(requires) {
        let unit = expand_specifiers(unit, &found.name);
        if !is_unit_name(&unit) || is_template(&name) != is_template(&unit) && is_template(&name) {
            if is_preset {
                continue;
            }
            return Ok(Err(format!(
                "Failed to enable unit: Invalid unit name or template mismatch: {name} for {unit}."
            )));
        }
        links::make_link(&format!("{UNITS_DIR}/{unit}.{kind}/{name}"), &found.path, view)?;
    }
    Ok(Ok(()))
}

/// Whether one unit can be an alias of another: same type, both with or both without an instance.
fn is_valid_alias(alias: &str, unit: &str) -> bool {
    let kind = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let may_have = ["service", "socket", "target", "device", "timer", "path"];
    kind(alias) == kind(unit)
        && may_have.contains(&kind(unit).as_str())
        && match (instance_of(alias), instance_of(unit)) {
            (Some(alias), Some(unit)) => alias == unit,
            (Some(_), None) => is_template(unit),
            (None, Some(_)) => false,
            (None, None) => is_template(alias) == is_template(unit),
        }
}

/// `b` for `a@b.service`.
fn instance_of(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once('@')?;
    rest.rsplit_once('.').map(|(instance, _)| instance).filter(|instance| !instance.is_empty())
}

/// The specifiers that a unit's name expands to.
fn expand_specifiers(text: &str, unit: &str) -> String {
    let stem = unit.rsplit_once('.').map_or(unit, |(stem, _)| stem);
    let (prefix, instance) = stem.split_once('@').unwrap_or((stem, ""));
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => out.push_str(unit),
            Some('N') => out.push_str(stem),
            Some('p') => out.push_str(prefix),
            Some('i') => out.push_str(instance),
            Some('j') => out.push_str(prefix.rsplit('-').next().unwrap_or_default()),
            Some('%') | None => out.push('%'),
            Some(other) => out.extend(['%', other]),
        }
    }
    out
}

/// Disables units: removes every link to them and to the units in their `Also=`.
pub(super) fn disable(
    names: &[&str],
    view: &mut TreeOverlay,
) -> Result<SystemctlResult, ApplyError> {
    let mut queue: VecDeque<(String, bool)> =
        names.iter().map(|name| ((*name).to_owned(), false)).collect();
    let (mut seen, mut marked) = (BTreeSet::new(), BTreeSet::new());
    while let Some((name, is_also)) = queue.pop_front() {
        if !seen.insert(name.clone()) {
            continue;
        }
        match find_unit(&name, view)? {
            None if is_also => {}
            None => {
                let problem = format!("Failed to disable unit: Unit file {name} does not exist.");
                return Ok(Err(problem));
            }
            Some(found) if found.is_masked => {}
            Some(found) => {
                marked.insert(found.name.clone());
                queue.extend(found.install.also.into_iter().map(|name| (name, true)));
            }
        }
    }
    links::remove_links_to(&marked, view)?;
    Ok(Ok(()))
}
