//! A machine that has drifted is put right: the same steps, the same journal, the same way back as
//! for any other change.

use std::path::Path;

use anyhow::{Context as _, Result};
use machinist_core::api::MachineConfig;
use machinist_core::drift;

use super::super::once::{self, Change};
use super::super::root::Root;

/// Where units are.
const UNITS: &str = "/etc/systemd/system/";

/// What was put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Healed {
    /// What was done, in order.
    pub(crate) changes: Vec<Change>,
    /// Whether systemd has to read its units anew.
    pub(crate) has_units: bool,
    /// What is left to say.
    pub(crate) notes: Vec<String>,
}

/// Puts everything right that a config manages, or nothing.
pub(crate) fn heal(root: &Path, config: &MachineConfig) -> Result<Healed> {
    let root = Root::open(root)?;
    once::recover(&root)?;
    let plan =
        drift::plan_repair(config, &root, once::style()).context("drift cannot be healed")?;
    let changes: Vec<Change> = plan.steps.iter().map(once::describe).collect();
    let has_units = changes.iter().any(|change| change.path.starts_with(UNITS));
    let mut notes = plan.notes.clone();
    if !plan.steps.is_empty() {
        notes.extend(once::carry_out(&root, plan).context("drift cannot be healed")?);
    }
    Ok(Healed { changes, has_units, notes })
}
