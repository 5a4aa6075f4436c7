//! A machine that has drifted is put right: the same steps, the same journal, the same way back as
//! for any other change.

use std::path::Path;

use anyhow::{Context as _, Result};
use machinist_core::api::MachineConfig;
use machinist_core::drift;

use super::super::root::HostRoot;
use super::super::transaction::{self, FsChange};

/// Where units are.
const UNIT_DIR: &str = "/etc/systemd/system/";

/// What was put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HealReport {
    /// What was done, in order.
    pub(crate) changes: Vec<FsChange>,
    /// Whether systemd has to read its units anew.
    pub(crate) needs_daemon_reload: bool,
    /// What is left to say.
    pub(crate) notes: Vec<String>,
}

/// Puts everything right that a config manages, or nothing.
pub(crate) fn heal(root: &Path, config: &MachineConfig) -> Result<HealReport> {
    let root = HostRoot::open(root)?;
    transaction::recover(&root)?;
    let plan = drift::plan_repair(config, &root, transaction::host_style())
        .context("drift cannot be healed")?;
    let changes: Vec<FsChange> = plan.steps.iter().map(transaction::describe).collect();
    let has_units = changes.iter().any(|change| change.path.starts_with(UNIT_DIR));
    let mut notes = plan.notes.clone();
    if !plan.steps.is_empty() {
        notes.extend(transaction::commit(&root, plan).context("drift cannot be healed")?);
    }
    Ok(HealReport { changes, needs_daemon_reload: has_units, notes })
}
