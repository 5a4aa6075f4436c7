//! What no config may touch: Machinist's own units, state and binary on the machine.
//!
//! A config that stops, masks or replaces the daemon takes away what would roll it back. `validate`, `plan`, `render`
//! and the daemon refuse it in the same words.

use crate::api::names::path::DAEMON_DIR;
use crate::ignition::schema::{Config, Unit};

/// Our own services and timers, without their suffix. `machinist-.service.d` holds drop-ins for all of them. Units that
/// our templates write, such as `machinist-ca-trust.service`, are not among them.
const OWN_UNITS: [&str; 8] = [
    "machinist-",
    "machinist-daemon",
    "machinist-enrol",
    "machinist-firstboot",
    "machinist-guard",
    "machinist-hub",
    "machinist-server",
    "machinist-watchdog",
];
/// Directories from which systemd reads units.
const UNIT_DIRS: [&str; 6] = [
    "/etc/systemd/system/",
    "/run/systemd/system/",
    "/usr/lib/systemd/system/",
    "/usr/local/lib/systemd/system/",
    "/lib/systemd/system/",
    "/etc/systemd/system.control/",
];
/// The daemon's state and credentials.
const STATE_DIR: &str = "/var/lib/machinist";
/// Where packages, `join` and the first boot put the binary.
const BINARIES: [&str; 2] = ["/usr/bin/machinist", "/usr/local/bin/machinist"];

/// The paths of Machinist itself on a machine: state, binary and units, whether or not they are there.
#[must_use]
pub fn own_paths() -> Vec<String> {
    let services = OWN_UNITS.iter().filter(|name| !name.ends_with('-'));
    let units = services.flat_map(|name| {
        ["service", "timer"].map(|kind| format!("/etc/systemd/system/{name}.{kind}"))
    });
    let fixed = [DAEMON_DIR, STATE_DIR].into_iter().chain(BINARIES).map(str::to_owned);
    fixed.chain(units).collect()
}

/// A part of a config that would change Machinist itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnFileProblem {
    /// A file, directory or link.
    #[error("{0} belongs to Machinist, and no config may write it (remove it from the config)")]
    Path(String),
    /// A unit.
    #[error(
        "unit {0} belongs to Machinist, and no config may change, mask or disable it (remove it from the config)"
    )]
    Unit(String),
}

/// Checks that a config leaves Machinist itself alone.
pub fn check_own_files(config: &Config) -> Result<(), OwnFileProblem> {
    let storage = &config.storage;
    let paths = storage.files.iter().map(|file| &file.path);
    let paths = paths.chain(storage.directories.iter().map(|directory| &directory.path));
    let mut paths = paths.chain(storage.links.iter().map(|link| &link.path));
    if let Some(path) = paths.find(|path| is_own_path(path)) {
        return Err(OwnFileProblem::Path(path.clone()));
    }
    match config.systemd.units.iter().find(|unit| is_own_unit(&unit.name) && has_effect(unit)) {
        Some(unit) => Err(OwnFileProblem::Unit(unit.name.clone())),
        None => Ok(()),
    }
}

fn is_own_path(path: &str) -> bool {
    let is_state =
        path == STATE_DIR || path.strip_prefix(STATE_DIR).is_some_and(|rest| rest.starts_with('/'));
    let below_units = UNIT_DIRS.iter().find_map(|directory| path.strip_prefix(directory));
    // A link in `multi-user.target.wants` enables the unit of its name.
    let is_unit = below_units.is_some_and(|rest| rest.split('/').any(is_own_unit));
    is_state || is_unit || BINARIES.contains(&path)
}

/// Whether a name is that of an own unit, or of the directory of its drop-ins or dependencies.
fn is_own_unit(name: &str) -> bool {
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
    OWN_UNITS.contains(&stem)
}

/// Whether a unit entry does more than enable the unit, which it is anyway.
fn has_effect(unit: &Unit) -> bool {
    unit.contents.is_some()
        || !unit.dropins.is_empty()
        || unit.mask == Some(true)
        || unit.enabled == Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(section: &str, entry: &Value) -> Result<(), String> {
        let (outer, inner) = section.split_once('.').unwrap();
        let config = json!({"ignition": {"version": "3.5.0"}, outer: {inner: [entry]}});
        let (config, _) = crate::ignition::parse_and_upgrade(&config).unwrap();
        check_own_files(&config).map_err(|problem| problem.to_string())
    }

    #[test]
    fn paths_of_machinist_are_refused() {
        for (path, is_refused) in [
            ("/var/lib/machinist", true),
            ("/var/lib/machinist/kubeconfig", true),
            ("/var/lib/machinist-other/x", false),
            ("/usr/local/bin/machinist", true),
            ("/usr/local/bin/machinist-report", false),
            ("/etc/systemd/system/machinist-daemon.service", true),
            ("/etc/systemd/system/machinist-daemon.service.d/10.conf", true),
            ("/etc/systemd/system/machinist-.service.d/10.conf", true),
            ("/run/systemd/system/machinist-daemon.service.d/10.conf", true),
            ("/etc/systemd/system/multi-user.target.wants/machinist-daemon.service", true),
            ("/etc/systemd/system/machinist-watchdog.timer", true),
            ("/etc/systemd/system/machinist-ca-trust.service", false),
            ("/etc/systemd/system/report-machinist-daemon.service", false),
            ("/etc/machinist-daemon.service", false),
        ] {
            for section in ["storage.files", "storage.directories", "storage.links"] {
                let checked = check(section, &json!({"path": path, "target": "/dev/null"}));
                assert_eq!(checked.is_err(), is_refused, "{section} {path}");
                let names_it = checked.is_err_and(|text| text.contains(path));
                assert_eq!(names_it, is_refused, "{section} {path}");
            }
        }
    }

    #[test]
    fn units_of_machinist_are_refused() {
        let own = "machinist-daemon.service";
        for (unit, is_refused) in [
            (json!({"name": own, "mask": true}), true),
            (json!({"name": own, "enabled": false}), true),
            (json!({"name": own, "contents": "[Service]\n"}), true),
            (json!({"name": own, "dropins": [{"name": "a.conf", "contents": "x"}]}), true),
            (json!({"name": "machinist-.service", "dropins": [{"name": "a.conf"}]}), true),
            (json!({"name": own, "enabled": true}), false),
            (json!({"name": own, "mask": false}), false),
            (json!({"name": "my-machinist-daemon.service", "mask": true}), false),
        ] {
            assert_eq!(check("systemd.units", &unit).is_err(), is_refused, "{unit}");
        }
    }
}
