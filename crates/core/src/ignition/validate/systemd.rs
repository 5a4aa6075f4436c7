//! Validates units and drop-ins: their names, their contents, and whether enabling them has an
//! effect.

use std::collections::HashMap;

use super::super::report::ConfigPath;
use super::super::schema::{Systemd, Unit};
use super::Validator;
use crate::go::{path as go_path, unit_file};

impl Validator<'_> {
    pub(super) fn systemd(&mut self, systemd: &Systemd, path: &ConfigPath) {
        let path = path.key("units");
        for (index, unit) in systemd.units.iter().enumerate() {
            self.unit(unit, &path.index(index));
        }
        self.instances_of_templates(systemd, &path);
    }

    fn unit(&mut self, unit: &Unit, path: &ConfigPath) {
        if !is_unit_name(&unit.name) {
            self.report.error(&path.key("name"), "invalid systemd unit extension");
        }
        let contents = unit.contents.as_deref().unwrap_or_default();
        match unit_file::option_sections(contents) {
            Err(problem) => {
                let message = format!("invalid unit content: {problem}");
                self.report.error(&path.key("contents"), message);
            }
            Ok(sections) => {
                let enabled = unit.enabled == Some(true) && !contents.is_empty();
                if enabled && !sections.contains(&"Install") {
                    let message = format!(
                        "unit {:?} is enabled, but has no install section so enable does nothing",
                        unit.name
                    );
                    self.report.warning(&path.key("contents"), message);
                }
            }
        }
        for (index, dropin) in unit.dropins.iter().enumerate() {
            let path = path.key("dropins").index(index);
            let contents = dropin.contents.as_deref().unwrap_or_default();
            if let Err(problem) = unit_file::option_sections(contents) {
                let message = format!("invalid unit content: {problem}");
                self.report.error(&path.key("contents"), message);
            }
            if go_path::ext(&dropin.name) != ".conf" {
                self.report.error(&path.key("name"), "invalid systemd drop-in extension");
            }
        }
    }

    /// An enabled instance `a@b.service` needs its template `a@.service` to be installable.
    fn instances_of_templates(&mut self, systemd: &Systemd, path: &ConfigPath) {
        let units: HashMap<&str, &Unit> =
            systemd.units.iter().map(|unit| (unit.name.as_str(), unit)).collect();
        for (index, unit) in systemd.units.iter().enumerate() {
            let Some(template) = template_of(&unit.name).filter(|_| unit.enabled == Some(true))
            else {
                continue;
            };
            let contents = units.get(template.as_str()).and_then(|unit| unit.contents.as_deref());
            let Some(contents) = contents.filter(|contents| !contents.is_empty()) else { continue };
            let installable = unit_file::option_sections(contents)
                .map_or(true, |sections| sections.contains(&"Install"));
            if !installable {
                let message = format!(
                    "template unit {template:?} for {:?} doesn't have Install section",
                    unit.name
                );
                self.report.warning(&path.index(index).key("contents"), message);
            }
        }
    }
}

/// Whether a name has the suffix of a systemd unit.
pub(crate) fn is_unit_name(name: &str) -> bool {
    matches!(
        go_path::ext(name),
        ".service"
            | ".socket"
            | ".device"
            | ".mount"
            | ".automount"
            | ".swap"
            | ".target"
            | ".path"
            | ".timer"
            | ".snapshot"
            | ".slice"
            | ".scope"
    )
}

/// The template of a service instance.
fn template_of(name: &str) -> Option<String> {
    let stem = name.strip_suffix(".service")?;
    // The shortest prefix before an `@` that is followed by something.
    let at = stem.char_indices().find(|&(at, c)| c == '@' && at > 0 && at + 1 < stem.len())?.0;
    Some(format!("{}@.service", &stem[..at]))
}
