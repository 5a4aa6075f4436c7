//! The OS part of an update: what to stage, what a reboot made of it, and how to return.
//!
//! Pure functions over what the shell observed of the host. `core::os` says what a change is; this
//! module says which change a pending update needs.

use super::{PendingChange, PendingOsChange};
use crate::api::MachineConfig;
use crate::os::host::HostKind;
use crate::os::verify_boot::{
    BootOutcome, MAX_STAGE_ATTEMPTS, after_reboot, image_mismatch, kernel_arguments_mismatch,
};
use crate::os::{DesiredOs, KernelArgumentsChange, OsChange, OsStatus};

/// What the shell observed of the operating system.
#[derive(Debug, Clone)]
pub struct OsObserved {
    /// How this host changes its operating system.
    pub kind: HostKind,
    /// What is booted, and what the next boot starts.
    pub status: OsStatus,
    /// The kernel command line; `None` where nothing reads kernel arguments from a config.
    pub command_line: Option<String>,
}

/// Whether an update may touch the operating system, so that the host has to be observed.
#[must_use]
pub fn may_change_os(
    old: &MachineConfig,
    new: &MachineConfig,
    earlier: Option<&PendingChange>,
    force: bool,
) -> bool {
    force
        || earlier.is_some_and(|earlier| earlier.os.is_some())
        || DesiredOs::from_config(old) != DesiredOs::from_config(new)
}

/// What an update does to the operating system; `None` if nothing. `earlier` is an update that is not
/// finished: the machine may still run, or run again, what it had before.
#[must_use]
pub fn plan_os_change(
    old: &MachineConfig,
    new: &MachineConfig,
    earlier: Option<&PendingChange>,
    force: bool,
    boot_id: &str,
    observed: &OsObserved,
) -> Option<PendingOsChange> {
    let OsObserved { kind, status, command_line } = observed;
    let command_line = command_line.as_deref();
    let (mut base, wanted) = (DesiredOs::from_config(old), DesiredOs::from_config(new));
    let earlier = earlier.and_then(|earlier| earlier.os.as_ref().map(|os| (earlier, os)));
    let (mut was, mut needs_reboot) = (status.booted.clone(), false);
    if let Some((earlier, os)) = earlier {
        needs_reboot = earlier.needs_reboot(boot_id);
        let outcome =
            after_reboot(&os.change, &os.was, &base, status, command_line, MAX_STAGE_ATTEMPTS);
        // On a package host the files decide about the next boot, whatever is booted now.
        let is_not_booted = outcome != BootOutcome::Booted && *kind != HostKind::Plain;
        if needs_reboot || is_not_booted {
            base = DesiredOs::from_config(&earlier.previous);
        }
        was = os.was.clone();
    }
    let mut change = OsChange::between(&base, &wanted, &status.booted);
    if force {
        let repair = OsChange::repair(&wanted, &status.booted, command_line.unwrap_or_default());
        change.image = change.image.or(repair.image);
        if change.kernel_arguments.is_empty() && command_line.is_some() {
            change.kernel_arguments = repair.kernel_arguments;
        }
    }
    if change.is_empty() && earlier.is_none() {
        return None;
    }
    let is_staged = change.is_empty() && !needs_reboot;
    Some(PendingOsChange { change, was, is_staged, attempts: 0 })
}

/// The OS part of an update as the host performs it. A host that cannot set kernel arguments never set those that are
/// removed: nothing is staged for them.
#[must_use]
pub fn performed_os_change(
    os: Option<PendingOsChange>,
    supports_kernel_arguments: bool,
) -> Option<PendingOsChange> {
    let mut os = os?;
    if !supports_kernel_arguments {
        os.change.kernel_arguments = KernelArgumentsChange::default();
    }
    (supports_kernel_arguments || !os.change.is_empty()).then_some(os)
}

/// The OS part of a rollback from `config`; `None` if the update did not touch the operating system.
#[must_use]
pub fn plan_os_rollback(
    config: &MachineConfig,
    pending: &PendingChange,
    observed: &OsObserved,
) -> Option<PendingOsChange> {
    let os = pending.os.as_ref()?;
    let OsObserved { kind, status, command_line } = observed;
    let (now, before) = (DesiredOs::from_config(config), DesiredOs::from_config(&pending.previous));
    let command_line = command_line.as_deref();
    let outcome = after_reboot(&os.change, &os.was, &now, status, command_line, MAX_STAGE_ATTEMPTS);
    let change = match outcome {
        BootOutcome::Booted => OsChange::rollback(&now, &before, &status.booted, &os.was),
        // On a package host the files were changed, booted or not.
        _ if *kind == HostKind::Plain => OsChange::between(&now, &before, &status.booted),
        // The previous OS still runs: dropping what is staged is enough.
        BootOutcome::Lost | BootOutcome::NotBooted { .. } => OsChange::default(),
    };
    Some(PendingOsChange { change, was: status.booted.clone(), is_staged: false, attempts: 0 })
}

/// What the machine booted, compared with what its config asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum BootVerdict {
    /// Image and kernel arguments are as the config says.
    Matches,
    /// The staged OS was lost before it was booted. Stage it again with this change.
    StageAgain(Box<PendingChange>),
    /// The new OS does not come up. Roll back.
    NotBooted {
        /// What is wrong.
        problem: String,
    },
    /// The machine runs something else, and there is no update to roll back.
    Mismatch {
        /// What is wrong.
        problem: String,
    },
}

/// The OS change that a reboot had to bring, if the machine has rebooted since.
fn rebooted_os_change<'a>(
    pending: Option<&'a PendingChange>,
    boot_id: &str,
) -> Option<(&'a PendingChange, &'a PendingOsChange)> {
    let pending = pending.filter(|pending| pending.boot != boot_id)?;
    Some((pending, pending.os.as_ref()?))
}

/// Whether the booted OS has to be checked: the config says something about it, or a reboot had to
/// change it.
#[must_use]
pub fn needs_boot_check(
    config: &MachineConfig,
    pending: Option<&PendingChange>,
    boot_id: &str,
) -> bool {
    let wanted = DesiredOs::from_config(config);
    // The kernel type is never empty and is checked with the packages.
    let nothing = DesiredOs { kernel_type: wanted.kernel_type.clone(), ..DesiredOs::default() };
    rebooted_os_change(pending, boot_id).is_some() || wanted != nothing
}

/// Compares the booted OS with a config.
#[must_use]
pub fn boot_verdict(
    config: &MachineConfig,
    pending: Option<&PendingChange>,
    boot_id: &str,
    observed: &OsObserved,
) -> BootVerdict {
    let wanted = DesiredOs::from_config(config);
    let OsObserved { kind, status, command_line } = observed;
    let command_line = command_line.as_deref();
    if let Some((pending, os)) = rebooted_os_change(pending, boot_id) {
        // A package host loses nothing: what is in its files is there.
        let attempts = if *kind == HostKind::Plain { MAX_STAGE_ATTEMPTS } else { os.attempts };
        match after_reboot(&os.change, &os.was, &wanted, status, command_line, attempts) {
            BootOutcome::Lost => {
                return BootVerdict::StageAgain(Box::new(pending.clone().retry(boot_id)));
            }
            BootOutcome::NotBooted { problem } if !pending.is_rollback => {
                return BootVerdict::NotBooted { problem };
            }
            // A rollback has nothing to return to: its problem is a mismatch, found below.
            BootOutcome::Booted | BootOutcome::NotBooted { .. } => {}
        }
    }
    let image =
        if *kind == HostKind::Plain { None } else { image_mismatch(&wanted, &status.booted) };
    let arguments = || command_line.and_then(|line| kernel_arguments_mismatch(&wanted, line));
    match image.or_else(arguments) {
        Some(problem) => BootVerdict::Mismatch { problem },
        None => BootVerdict::Matches,
    }
}

#[cfg(test)]
mod tests;
