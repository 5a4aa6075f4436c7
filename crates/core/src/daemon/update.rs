//! The rules of an update: whether a machine can take it in place, what it costs, and whether the
//! machine has to be drained first.

use k8s_openapi::api::core::v1::Node;

use super::{PendingChange, PendingOsChange, actions, annotations};
use crate::api::MachineConfig;
use crate::api::operator::{DisruptionAction, DisruptionActionType};
use crate::diff::{ChangeFlags, diff};
use crate::disruption::{DisruptionRules, disruption};
use crate::reconcile_check::{
    ConfigChange, IrreconcilableSection, ValidationOverrides, check_reconcilable,
};

/// What a host says about an update.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostLimits {
    /// Whether the kernel runs in FIPS mode; `None` if the host does not say.
    pub fips: Option<bool>,
    /// Why the config is not for a host like this one.
    pub profile_refusal: Option<String>,
    /// Why the host cannot make the OS change.
    pub os_refusal: Option<String>,
}

/// Checks whether a machine can change from one config to another without being reinstalled.
///
/// # Errors
/// Why it cannot, in MCO's words.
pub fn check_update(
    old: &MachineConfig,
    new: &MachineConfig,
    overrides: ValidationOverrides,
    host: HostLimits,
) -> Result<ConfigChange, String> {
    let change = check_reconcilable(old, new, overrides).map_err(|error| error.to_string())?;
    match fips_refusal(new, host.fips).or(host.profile_refusal).or(host.os_refusal) {
        Some(refusal) => Err(refusal),
        None => Ok(change),
    }
}

/// Why a config does not fit the FIPS mode of the running kernel. The mode is set when a machine is
/// installed and cannot change later.
#[must_use]
pub fn fips_refusal(new: &MachineConfig, host: Option<bool>) -> Option<String> {
    let wanted = new.spec.fips.unwrap_or_default();
    host.filter(|enabled| *enabled != wanted).map(|_| IrreconcilableSection::Fips.to_string())
}

/// Which parts of a machine an update changes. Whether the OS changes depends on the host: another
/// name may mean the image that is booted, and without a boot loader no kernel argument changes.
#[must_use]
pub fn update_flags(
    old: &MachineConfig,
    new: &MachineConfig,
    change: &ConfigChange,
    os: Option<&PendingOsChange>,
    supports_kernel_arguments: bool,
) -> ChangeFlags {
    let mut flags = diff(old, new, change).flags;
    flags.os_update = os.is_some_and(|os| os.change.image.is_some());
    flags.kargs &= supports_kernel_arguments;
    flags
}

/// The actions that follow an update. The force file always leads to a reboot, as in MCO.
#[must_use]
pub fn update_actions(
    change: &ConfigChange,
    flags: ChangeFlags,
    rules: &DisruptionRules,
    force: bool,
) -> Vec<DisruptionAction> {
    if force {
        let type_ = DisruptionActionType::Reboot;
        return vec![DisruptionAction { type_, ..DisruptionAction::default() }];
    }
    disruption(change, flags, rules).actions
}

/// Whether an update can be written now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainDecision {
    /// The machine has to be drained first.
    Request,
    /// It is already drained for this config.
    AlreadyDrained,
    /// Machines like this one are never drained.
    Unsupported,
    /// The update needs no drain, or its reboot is deferred and the drain with it.
    NotNeeded,
}

/// Decides about the drain before an update.
#[must_use]
pub fn drain_decision(
    node: &Node,
    config: &str,
    actions: &[DisruptionAction],
    needs_drain: bool,
) -> DrainDecision {
    let is_deferred = annotations::defers_reboot(node) && actions::needs_reboot(actions);
    match () {
        () if !needs_drain || is_deferred => DrainDecision::NotNeeded,
        () if !annotations::needs_no_drain(node, config) => DrainDecision::Request,
        () if annotations::supports_drain(node) => DrainDecision::AlreadyDrained,
        () => DrainDecision::Unsupported,
    }
}

/// Whether a machine that cannot read its Node has to check its health on its own. A change may have
/// cut the machine off from the API server; then nobody else can roll it back.
#[must_use]
pub fn needs_offline_health_check(
    config_on_disk: &str,
    pending: &PendingChange,
    boot_id: &str,
) -> bool {
    pending.config == config_on_disk
        && !pending.is_rollback
        && pending.remaining_actions(boot_id).is_empty()
}

#[cfg(test)]
mod tests;
