//! What no config may touch: Machinist's own units, state and binary on the machine.
//!
//! A config that stops, masks or replaces the daemon takes away what would roll it back. `validate`, `plan`, `render`
//! and the daemon refuse it in the same words.
//!
//! This protects from accidents: whoever writes configs has root's rights on the machine, and a command that a config starts
//! can do anything. What is left of the daemon then, its watchdog restores.

mod unit_settings;

use crate::api::names::path::DAEMON_DIR;
use crate::ignition::contents::{self, ContentsError};
use crate::ignition::schema::{Config, File, Link, Unit};
use unit_settings::{setting_against_own_unit, unsafe_for_all};

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
/// Mounts that would hide the state or the binary. Those of directories above, such as `var.mount`, are common.
const OWN_MOUNTS: [&str; 3] = ["var-lib-machinist", "usr-bin-machinist", "usr-local-bin-machinist"];
/// Without these nothing of Machinist starts.
const TARGETS: [&str; 5] =
    ["basic.target", "default.target", "multi-user.target", "sysinit.target", "timers.target"];
/// Where `default.target` may not point to: Machinist is not started there.
const NOT_BOOTED: [&str; 10] = [
    "emergency.target",
    "exit.target",
    "halt.target",
    "initrd.target",
    "kexec.target",
    "poweroff.target",
    "reboot.target",
    "rescue.target",
    "shutdown.target",
    "sysinit.target",
];
/// Directories from which systemd reads units.
const UNIT_DIRS: [&str; 13] = [
    "/etc/systemd/system/",
    "/run/systemd/system/",
    "/usr/lib/systemd/system/",
    "/usr/local/lib/systemd/system/",
    "/lib/systemd/system/",
    "/etc/systemd/system.control/",
    "/run/systemd/system.control/",
    "/etc/systemd/system.attached/",
    "/run/systemd/system.attached/",
    "/run/systemd/transient/",
    "/run/systemd/generator/",
    "/run/systemd/generator.early/",
    "/run/systemd/generator.late/",
];
/// Directories of presets: what `systemctl preset-all` and the first boot enable and disable.
const PRESET_DIRS: [&str; 5] = [
    "/etc/systemd/system-preset/",
    "/run/systemd/system-preset/",
    "/usr/lib/systemd/system-preset/",
    "/usr/local/lib/systemd/system-preset/",
    "/lib/systemd/system-preset/",
];
/// The daemon's state and credentials.
const STATE_DIR: &str = "/var/lib/machinist";
/// Where packages, `join` and the first boot put the binary.
const BINARIES: [&str; 2] = ["/usr/bin/machinist", "/usr/local/bin/machinist"];
/// The largest file with settings of units that is read.
const MAX_SETTINGS_BYTES: u64 = 1 << 20;

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
    /// A unit that starts Machinist.
    #[error(
        "{0} starts Machinist, and no config may mask it or turn it into something else (remove it from the config)"
    )]
    Target(String),
    /// A setting for all units of a type, with which Machinist's own might not run.
    #[error(
        "{path}: {setting} would apply to Machinist's own units too (write it to the drop-ins of the units that need it)"
    )]
    ForAllUnits {
        /// The drop-in.
        path: String,
        /// The setting, or why the settings are unknown.
        setting: String,
    },
    /// A setting of another unit that replaces or stops one of ours.
    #[error(
        "{at}: {setting} would replace, stop or disable a unit of Machinist (remove it from the config)"
    )]
    AgainstOwnUnit {
        /// The unit, drop-in or preset.
        at: String,
        /// The setting.
        setting: String,
    },
    /// A kernel argument.
    #[error("kernel argument {0} would keep Machinist from starting (remove it from the config)")]
    KernelArgument(String),
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
    storage.files.iter().try_for_each(check_file)?;
    storage.links.iter().try_for_each(check_link)?;
    config.systemd.units.iter().try_for_each(check_unit)?;
    check_own_kernel_arguments(config.kernel_arguments.should_exist.iter().map(String::as_str))
}

/// Checks that kernel arguments do not mask what Machinist needs.
pub fn check_own_kernel_arguments<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<(), OwnFileProblem> {
    let masks = |argument: &&str| {
        let unit = argument.strip_prefix("systemd.mask=").map(|unit| unit.trim_matches('"'));
        unit.is_some_and(|unit| is_own_unit(unit) || TARGETS.contains(&unit))
    };
    match arguments.into_iter().flat_map(str::split_whitespace).find(masks) {
        Some(argument) => Err(OwnFileProblem::KernelArgument(argument.to_owned())),
        None => Ok(()),
    }
}

fn is_own_path(path: &str) -> bool {
    let is_state =
        path == STATE_DIR || path.strip_prefix(STATE_DIR).is_some_and(|rest| rest.starts_with('/'));
    // A link in `multi-user.target.wants` enables the unit of its name.
    let is_unit = below(&UNIT_DIRS, path).is_some_and(|rest| rest.split('/').any(is_own_unit));
    is_state || is_unit || BINARIES.contains(&path)
}

/// The part of a path below one of these directories.
fn below<'a>(directories: &[&str], path: &'a str) -> Option<&'a str> {
    directories.iter().find_map(|directory| path.strip_prefix(directory))
}

/// Whether a name is that of an own unit, or of the directory of its drop-ins or dependencies.
fn is_own_unit(name: &str) -> bool {
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
    let is_mount = OWN_MOUNTS.iter().any(|own| {
        stem.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    });
    OWN_UNITS.contains(&stem)
        || (is_mount && (name.contains(".mount") || name.contains(".automount")))
}

/// Whether this is a drop-in for all services or all timers, and so for ours.
fn is_for_all(below_units: &str) -> bool {
    let Some((directory, name)) = below_units.split_once('/') else { return false };
    matches!(directory, "service.d" | "timer.d") && name.ends_with(".conf") && !name.contains('/')
}

fn check_file(file: &File) -> Result<(), OwnFileProblem> {
    let path = &file.path;
    let unit = below(&UNIT_DIRS, path);
    if unit.is_some_and(|unit| TARGETS.contains(&unit)) {
        return Err(OwnFileProblem::Target(path.clone()));
    }
    if unit.is_none() && below(&PRESET_DIRS, path).is_none() {
        return Ok(());
    }
    let for_all = |setting| OwnFileProblem::ForAllUnits { path: path.clone(), setting };
    for resource in std::iter::once(&file.contents).chain(file.append.iter()) {
        let text = match contents::decode(resource, MAX_SETTINGS_BYTES) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            // What it is can be said of no config; other checks report those that cannot be decoded.
            Err(error @ (ContentsError::Remote { .. } | ContentsError::TooLarge { .. }))
                if unit.is_some_and(is_for_all) =>
            {
                return Err(for_all(format!("a file whose {error}")));
            }
            Err(_) => continue,
        };
        check_settings(path, &text)?;
        if let Some(setting) = unsafe_for_all(&text).filter(|_| unit.is_some_and(is_for_all)) {
            return Err(for_all(setting));
        }
    }
    Ok(())
}

fn check_link(link: &Link) -> Result<(), OwnFileProblem> {
    let (path, target) = (&link.path, link.target.as_deref().unwrap_or_default());
    let Some(unit) = below(&UNIT_DIRS, path) else { return Ok(()) };
    let target_name = target.rsplit('/').next().unwrap_or_default();
    let is_lost = unit != "default.target"
        || target == "/dev/null"
        || target.is_empty()
        || NOT_BOOTED.contains(&target_name);
    if TARGETS.contains(&unit) && is_lost {
        return Err(OwnFileProblem::Target(path.clone()));
    }
    let is_hidden = matches!(unit, "service.d" | "timer.d");
    if is_hidden || (is_for_all(unit) && target != "/dev/null") {
        let setting = format!("a link to {target}, whose settings are not known,");
        return Err(OwnFileProblem::ForAllUnits { path: path.clone(), setting });
    }
    Ok(())
}

fn check_unit(unit: &Unit) -> Result<(), OwnFileProblem> {
    if is_own_unit(&unit.name) && has_effect(unit) {
        return Err(OwnFileProblem::Unit(unit.name.clone()));
    }
    let replaces = unit.mask == Some(true) || unit.contents.is_some();
    if TARGETS.contains(&unit.name.as_str()) && replaces {
        return Err(OwnFileProblem::Target(unit.name.clone()));
    }
    let own = unit.contents.iter().map(|text| (unit.name.clone(), text));
    let drop_ins = unit.dropins.iter().filter_map(|drop_in| {
        Some((format!("{}.d/{}", unit.name, drop_in.name), drop_in.contents.as_ref()?))
    });
    own.chain(drop_ins).try_for_each(|(at, text)| check_settings(&at, text))
}

fn check_settings(at: &str, text: &str) -> Result<(), OwnFileProblem> {
    match setting_against_own_unit(text, is_own_unit) {
        Some(setting) => Err(OwnFileProblem::AgainstOwnUnit { at: at.to_owned(), setting }),
        None => Ok(()),
    }
}

/// Whether a unit entry does more than enable the unit, which it is anyway. A mount of ours is never there.
fn has_effect(unit: &Unit) -> bool {
    let is_mount = unit.name.ends_with("mount");
    unit.contents.is_some()
        || !unit.dropins.is_empty()
        || unit.mask == Some(true)
        || unit.enabled == Some(is_mount)
}

#[cfg(test)]
mod tests;
