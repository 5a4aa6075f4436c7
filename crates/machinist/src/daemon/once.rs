//! One config applied to one root, without an API server: for `machinist once` and for the first boot.

use anyhow::Result;
use machinist_core::api::MachineConfig;
use machinist_core::apply::{self, empty_config};
use machinist_core::reconcile_check::{ValidationOverrides, check_reconcilable};
use serde::Serialize;

use super::os::abilities::{detect_abilities, with_user_rules};
use super::private_files;
use super::root::HostRoot;
use super::state::current_config;
use super::transaction::{self, FsChange, Recovered, Recovery};

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OnceReport {
    /// The config that the root had.
    pub from: String,
    /// The config that was to be applied.
    pub to: String,
    /// An interrupted change that was recovered first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovered: Option<Recovery>,
    /// Why the change was refused; nothing was written then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The changes, in order.
    pub changes: Vec<FsChange>,
    /// What was left out or is unusual.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Applies a config to a root.
pub fn apply_once(root: &HostRoot, new: &MachineConfig) -> Result<OnceReport> {
    recover_and_apply(root, new, empty_config())
}

/// Applies the first config of a machine in Ignition's place. Only here may FIPS mode change: it is set
/// with the first reboot.
pub(super) fn apply_first_config(root: &HostRoot, new: &MachineConfig) -> Result<OnceReport> {
    let mut initial = empty_config();
    initial.spec.fips = new.spec.fips;
    recover_and_apply(root, new, initial)
}

/// `initial` is the current config of a root that has none.
fn recover_and_apply(
    root: &HostRoot,
    new: &MachineConfig,
    initial: MachineConfig,
) -> Result<OnceReport> {
    let recovered = transaction::recover(root)?;
    private_files::restrict(root)?;
    let recovery = recovered.report();
    apply_config(root, new, initial, recovered).map_err(|error| match recovery {
        // The recovery happened even if this run failed.
        Some(recovery) => error.context(recovery),
        None => error,
    })
}

fn apply_config(
    root: &HostRoot,
    new: &MachineConfig,
    initial: MachineConfig,
    recovered: Recovered,
) -> Result<OnceReport> {
    let old = current_config(root)?.unwrap_or(initial);
    let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
    let mut report = OnceReport {
        from: name(&old),
        to: name(new),
        recovered: recovered.change,
        refused: None,
        changes: Vec::new(),
        notes: recovered.unreadable.iter().map(ToString::to_string).collect(),
    };
    let overrides = with_user_rules(root.path(), ValidationOverrides::default());
    if let Err(refusal) = check_reconcilable(&old, new, overrides) {
        report.refused = Some(refusal.to_string());
        return Ok(report);
    }
    report.refused = detect_abilities(root.path()).profile_refusal(&old, new);
    if report.refused.is_some() {
        return Ok(report);
    }
    let plan = transaction::plan(root, &old, new)?;
    if let Err(obstructed) = transaction::check_obstacles(root, &plan) {
        report.refused = Some(format!("{obstructed:#}"));
        return Ok(report);
    }
    report.changes = plan.steps.iter().map(transaction::describe).collect();
    report.notes.extend(apply::not_applied_here(new).into_iter().chain(plan.notes.clone()));
    if !plan.steps.is_empty()
        && let Some(note) = transaction::commit(root, plan)?
    {
        report.notes.push(note);
    }
    Ok(report)
}
