//! Whether a running machine can change from one config to another in place, and if not, why.
//!
//! The daemon calls [`check_reconcilable`] before it changes anything; the controller calls it
//! before it gives a rendered config to machines.

use serde::Serialize;

use crate::api::MachineConfig;
use crate::ignition::path_limits::check_path_lengths;
use crate::ignition::schema::{Config, PasswdUser};
use crate::ignition::unpacked_size::check_unpacked_sizes;
use crate::ignition::{self, IgnitionError, IgnitionReport};
use crate::own_files::check_own_files;
use crate::validate::{MachineConfigProblem, check_kernel_arguments, check_modes};

/// The file that makes a daemon apply everything again. A config must not write it.
pub const FORCE_FILE: &str = "/run/machine-config-daemon-force";

/// The one user whose keys and password a running machine manages.
pub const CORE_USER: &str = "core";

/// Sections of `storage` that may change on existing machines although they cannot be applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValidationOverrides {
    /// `storage.disks` may change.
    pub disks: bool,
    /// `storage.filesystems` may change.
    pub filesystems: bool,
    /// `storage.raid` may change.
    pub raid: bool,
    /// Any user may be declared, as on hosts that are not MCO's.
    pub any_user: bool,
}

/// The section that a running machine cannot change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum IrreconcilableSection {
    /// Groups differ.
    #[error("invalid passwd change(s): ignition Passwd Groups section contains changes")]
    Groups,
    /// A user other than `core` is declared.
    #[error(
        "invalid passwd change(s): ignition passwd user section contains unsupported changes: non-core user"
    )]
    OtherUser,
    /// `core` has neither a key nor a password.
    #[error(
        "invalid passwd change(s): ignition passwd user section contains unsupported changes: user must be core and have 1 or more sshKeys"
    )]
    CoreWithoutKeys,
    /// `core` has fields other than keys and a password.
    #[error("invalid passwd change(s): SSH keys and password hash are not reconcilable")]
    CoreFields,
    /// A user is to be removed.
    #[error(
        "passwd.users: shouldExist: false: users are not removed from a running machine: take the user out of the config, or remove it with userdel"
    )]
    UserRemoval,
    /// Ignition's own kernel arguments differ.
    #[error("ignition kargs section contains changes")]
    KernelArguments,
    /// Disks differ.
    #[error("ignition disks section contains changes")]
    Disks,
    /// File systems differ.
    #[error("ignition filesystems section contains changes")]
    Filesystems,
    /// RAID arrays differ.
    #[error("ignition raid section contains changes")]
    Raid,
    /// Directories differ.
    #[error("ignition directories section contains changes")]
    Directories,
    /// Links were added or changed.
    #[error("ignition links section contains changes")]
    Links,
    /// FIPS mode changed.
    #[error("detected change to FIPS flag; refusing to modify FIPS on a running cluster")]
    Fips,
}

/// Why a machine cannot change from one config to another.
#[derive(Debug, thiserror::Error)]
pub enum IrreconcilableError {
    /// The old config cannot be read.
    #[error(
        "parsing old Ignition config from machineconfig {name:?} failed: failed to parse Ignition config: {source}"
    )]
    OldConfig {
        /// The old config.
        name: String,
        /// What is wrong with it.
        source: IgnitionError,
    },
    /// The new config cannot be read.
    #[error(
        "parsing new Ignition config from machineconfig {name:?} failed: failed to parse Ignition config: {source}"
    )]
    NewConfig {
        /// The new config.
        name: String,
        /// What is wrong with it.
        source: IgnitionError,
    },
    /// The new config is not valid.
    #[error("validating new Ignition config from machineconfig {name:?} failed: {problem}")]
    Invalid {
        /// The new config.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Something changed that cannot be changed in place.
    #[error("new machineconfig {new:?} is not reconcilable against {old:?}: {reason}")]
    Section {
        /// The old config.
        old: String,
        /// The new config.
        new: String,
        /// What changed.
        reason: IrreconcilableSection,
    },
    /// A file has `append`, which is not idempotent.
    #[error(
        "new machineconfig {new:?} is not reconcilable against {old:?}: ignition file {path} includes append"
    )]
    FileAppend {
        /// The old config.
        old: String,
        /// The new config.
        new: String,
        /// The file.
        path: String,
    },
    /// The force file is written.
    #[error(
        "new machineconfig {new:?} is not reconcilable against {old:?}: cannot create {FORCE_FILE} via Ignition"
    )]
    ForceFile {
        /// The old config.
        old: String,
        /// The new config.
        new: String,
    },
}

impl IrreconcilableError {
    /// The reason, without the names of the two configs.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Section { reason, .. } => reason.to_string(),
            Self::FileAppend { path, .. } => format!("ignition file {path} includes append"),
            Self::ForceFile { .. } => format!("cannot create {FORCE_FILE} via Ignition"),
            Self::OldConfig { .. } | Self::NewConfig { .. } | Self::Invalid { .. } => {
                self.to_string()
            }
        }
    }
}

/// The parsed Ignition configs of an old and a new config.
#[derive(Debug, Clone)]
pub struct ConfigChange {
    /// The old Ignition config.
    pub old: Config,
    /// The new Ignition config.
    pub new: Config,
}

/// Checks whether a machine on `old` can apply `new` in place. Returns the parsed Ignition configs,
/// so that callers need not parse them again.
pub fn check_reconcilable(
    old: &MachineConfig,
    new: &MachineConfig,
    overrides: ValidationOverrides,
) -> Result<ConfigChange, IrreconcilableError> {
    let name = |mc: &MachineConfig| mc.metadata.name.clone().unwrap_or_default();
    let old_config =
        read(old).map_err(|source| IrreconcilableError::OldConfig { name: name(old), source })?;
    let new_config =
        read(new).map_err(|source| IrreconcilableError::NewConfig { name: name(new), source })?;
    validate_again(&new_config)
        .and_then(|()| check_kernel_arguments(&new.spec).map_err(|problem| problem.to_string()))
        .map_err(|problem| IrreconcilableError::Invalid { name: name(new), problem })?;
    let refuse = |reason| IrreconcilableError::Section { old: name(old), new: name(new), reason };
    check_sections(&old_config, &new_config, overrides).map_err(refuse)?;
    for file in &new_config.storage.files {
        if !file.append.is_empty() {
            let path = file.path.clone();
            return Err(IrreconcilableError::FileAppend { old: name(old), new: name(new), path });
        }
        if file.path == FORCE_FILE {
            return Err(IrreconcilableError::ForceFile { old: name(old), new: name(new) });
        }
    }
    if old.spec.fips.unwrap_or_default() != new.spec.fips.unwrap_or_default() {
        return Err(refuse(IrreconcilableSection::Fips));
    }
    Ok(ConfigChange { old: old_config, new: new_config })
}

/// Parses the Ignition config of a MachineConfig. A missing one is an error, as in MCO's daemon:
/// rendered configs always have one.
fn read(machine_config: &MachineConfig) -> Result<Config, IgnitionError> {
    match machine_config.spec.config.as_ref().filter(|raw| !raw.is_null()) {
        Some(raw) => ignition::parse_and_upgrade(raw).map(|(config, _)| config),
        None => {
            let mut report = IgnitionReport::default();
            report.error(&ignition::report::ConfigPath::root(), "not a config (empty)");
            Err(IgnitionError::Invalid { report })
        }
    }
}

/// A config that was upgraded from an older version must be valid in the current one too.
fn validate_again(config: &Config) -> Result<(), String> {
    let report = ignition::validate::validate(config, 5);
    if report.is_fatal() {
        return Err(format!("invalid ignition V3 config found: {report}"));
    }
    check_modes(config)
        .and_then(|()| Ok(check_unpacked_sizes(config)?))
        .and_then(|()| Ok(check_own_files(config)?))
        .and_then(|()| Ok(check_path_lengths(config)?))
        .map_err(|problem: MachineConfigProblem| problem.to_string())
}

fn check_sections(
    old: &Config,
    new: &Config,
    overrides: ValidationOverrides,
) -> Result<(), IrreconcilableSection> {
    if old.passwd.groups != new.passwd.groups {
        return Err(IrreconcilableSection::Groups);
    }
    if old.passwd.users != new.passwd.users {
        match overrides.any_user {
            true if new.passwd.users.iter().any(|user| user.should_exist == Some(false)) => {
                return Err(IrreconcilableSection::UserRemoval);
            }
            true => {}
            false => check_users(&new.passwd.users)?,
        }
    }
    if old.kernel_arguments != new.kernel_arguments {
        return Err(IrreconcilableSection::KernelArguments);
    }
    let (from, to) = (&old.storage, &new.storage);
    if !overrides.disks && from.disks != to.disks {
        return Err(IrreconcilableSection::Disks);
    }
    if !overrides.filesystems && from.filesystems != to.filesystems {
        return Err(IrreconcilableSection::Filesystems);
    }
    if !overrides.raid && from.raid != to.raid {
        return Err(IrreconcilableSection::Raid);
    }
    if from.directories != to.directories {
        return Err(IrreconcilableSection::Directories);
    }
    // Removing all links is allowed: they stay on disk.
    if from.links != to.links && !to.links.is_empty() {
        return Err(IrreconcilableSection::Links);
    }
    Ok(())
}

fn check_users(users: &[PasswdUser]) -> Result<(), IrreconcilableSection> {
    if users.iter().any(|user| user.name != CORE_USER) {
        return Err(IrreconcilableSection::OtherUser);
    }
    let Some(core) = users.last() else { return Ok(()) };
    if core.password_hash.is_none() && core.ssh_authorized_keys.is_empty() {
        return Err(IrreconcilableSection::CoreWithoutKeys);
    }
    let managed = PasswdUser {
        name: core.name.clone(),
        password_hash: core.password_hash.clone(),
        ssh_authorized_keys: core.ssh_authorized_keys.clone(),
        ..PasswdUser::default()
    };
    if *core == managed { Ok(()) } else { Err(IrreconcilableSection::CoreFields) }
}
