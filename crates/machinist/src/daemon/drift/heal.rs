//! Heals drift with the same plan, journal and rollback as any other change.

use std::path::Path;

use anyhow::{Context as _, Result};
use machinist_core::api::MachineConfig;
use machinist_core::drift;

use super::super::root::{HostRoot, host_defaults};
use super::super::transaction::{self, FsChange};

/// The directory of unit files.
const UNIT_DIR: &str = "/etc/systemd/system/";

/// What was healed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HealReport {
    /// The changes, in order.
    pub(crate) changes: Vec<FsChange>,
    /// Whether systemd has to reload its units.
    pub(crate) needs_daemon_reload: bool,
    /// What was left out or is unusual.
    pub(crate) notes: Vec<String>,
}

/// Heals everything that a config manages, or nothing.
pub(crate) fn heal(root: &Path, config: &MachineConfig) -> Result<HealReport> {
    let root = HostRoot::open(root)?;
    transaction::recover(&root)?;
    let plan = drift::plan_repair(config, &root, host_defaults()).context("cannot heal drift")?;
    let changes: Vec<FsChange> = plan.steps.iter().map(transaction::describe).collect();
    let has_units = changes.iter().any(|change| change.path.starts_with(UNIT_DIR));
    let mut notes = plan.notes.clone();
    if !plan.steps.is_empty() {
        notes.extend(transaction::commit(&root, plan).context("cannot heal drift")?);
    }
    Ok(HealReport { changes, needs_daemon_reload: has_units, notes })
}
