//! Presets: what the vendor and the administrator want for a unit nobody speaks about.

use std::collections::BTreeMap;

use super::super::error::ApplyError;
use super::super::node::Node;
use super::super::view::{View, folder_of};
use super::install::{self, Done};
use super::search::find;
use super::{is_template, pattern, template_of};

/// Where presets are; the first folder that has a file of some name wins.
const FOLDERS: [&str; 4] = [
    "/etc/systemd/system-preset",
    "/usr/local/lib/systemd/system-preset",
    "/lib/systemd/system-preset",
    "/usr/lib/systemd/system-preset",
];

/// What presets say about a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// It is enabled; a template, with these instances.
    Enable(Vec<String>),
    /// It is disabled.
    Disable,
}

/// Enables or disables a unit as the presets say. Gives what systemd would say where it cannot.
pub(super) fn preset(name: &str, view: &mut View) -> Result<Done, ApplyError> {
    let Some(found) = find(name, view)? else {
        return Ok(Err(format!("Unit file {name} does not exist.")));
    };
    if found.is_masked {
        return Ok(Err(format!("Unit file {} is masked.", found.path)));
    }
    // An alias has no say.
    if found.name != name {
        return Ok(Ok(()));
    }
    match verdict(name, view)? {
        Verdict::Disable => install::disable(&[name], view),
        Verdict::Enable(instances) if instances.is_empty() => {
            install::enable_for_preset(&[name], view)
        }
        Verdict::Enable(instances) => {
            let names: Vec<&str> = instances.iter().map(String::as_str).collect();
            install::enable_for_preset(&names, view)
        }
    }
}

fn verdict(name: &str, view: &mut View) -> Result<Verdict, ApplyError> {
    let mut files = BTreeMap::new();
    for folder in FOLDERS {
        let place = view.resolve(&format!("{folder}/x"))?;
        let place = folder_of(&place).to_owned();
        if !matches!(view.node(&place)?, Node::Folder { .. }) {
            continue;
        }
        for file in view.names(&place)? {
            if file.ends_with(".preset") && !files.contains_key(&file) {
                files.insert(file.clone(), view.text(&format!("{place}/{file}"))?);
            }
        }
    }
    let rules = files.values().flatten().flat_map(|text| text.lines());
    Ok(rules.filter_map(|line| rule(line, name)).next().unwrap_or(Verdict::Enable(Vec::new())))
}

/// What one line says about a unit, if anything.
fn rule(line: &str, name: &str) -> Option<Verdict> {
    let mut words = line.split_whitespace();
    let verb = words.next().filter(|word| !word.starts_with(['#', ';']))?;
    let glob = words.next()?;
    let instances: Vec<&str> = words.collect();
    // A rule for a template may name the instances that it is for.
    let is_instance = template_of(name).is_some_and(|template| template == glob)
        && instances.iter().any(|instance| name.contains(&format!("@{instance}.")));
    let matches = is_instance || pattern::matches(glob, name);
    match verb {
        _ if !matches => None,
        "enable" if is_template(name) => Some(Verdict::Enable(
            instances.iter().map(|it| name.replacen("@.", &format!("@{it}."), 1)).collect(),
        )),
        "enable" => Some(Verdict::Enable(Vec::new())),
        "disable" => Some(Verdict::Disable),
        _ => None,
    }
}
