//! Heals drift with the same plan, journal and rollback as any other change. Paths are healed
//! independently: one that cannot be healed is reported, and does not keep the others from being healed.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use machinist_core::api::MachineConfig;
use machinist_core::apply::{ApplyPlan, QuarantineView, RepairPlan};
use machinist_core::drift;

use super::super::quarantine;
use super::super::root::{HostRoot, WorkOnDisk, host_defaults};
use super::super::transaction::{self, FsChange, PartialChange};

/// The directory of unit files.
const UNIT_DIR: &str = "/etc/systemd/system/";

/// What was healed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HealReport {
    /// The changes, in order.
    pub(crate) changes: Vec<FsChange>,
    /// Whether systemd has to reload its units.
    pub(crate) needs_daemon_reload: bool,
    /// What was left out or is unusual.
    pub(crate) notes: Vec<String>,
    /// What could not be healed, each with the path and the remedy.
    pub(crate) not_healed: Vec<String>,
}

/// Heals everything that a config manages, as far as that is possible, except for the paths whose turn is
/// later.
pub(crate) fn heal(
    root: &Path,
    config: &MachineConfig,
    later: &BTreeSet<String>,
) -> Result<HealReport> {
    let _work = WorkOnDisk::begin();
    let root = HostRoot::open(root)?;
    transaction::recover(&root)?;
    let RepairPlan { plan, not_repaired } = plan_repair(&root, config)?;
    let plan = plan.without(later.iter().map(String::as_str));
    let mut report =
        HealReport { notes: plan.notes.clone(), not_healed: not_repaired, ..HealReport::default() };
    match transaction::commit_possible(&root, plan.clone()) {
        Ok(done) => report.add(done),
        // One path failed in a way that nobody could see before: each on its own.
        Err(error) => {
            let error = format_args!("{error:#}");
            tracing::warn!(%error, "cannot heal all paths together; healing them one by one");
            report.heal_one_by_one(&root, config, &plan)?;
        }
    }
    let has_unit = |change: &FsChange| change.path.starts_with(UNIT_DIR);
    report.needs_daemon_reload = report.changes.iter().any(has_unit);
    Ok(report)
}

fn plan_repair(root: &HostRoot, config: &MachineConfig) -> Result<RepairPlan> {
    let quarantine = quarantine::read(root)?;
    let tree = QuarantineView::new(root, &quarantine);
    drift::plan_repair(config, &tree, host_defaults()).context("cannot heal drift")
}

impl HealReport {
    fn add(&mut self, done: PartialChange) {
        self.changes.extend(done.changes);
        self.notes.extend(done.note);
        self.not_healed.extend(done.obstructed.iter().map(ToString::to_string));
    }

    /// Heals each path with a plan of its own. Plans again each time: the one before may have created
    /// directories.
    fn heal_one_by_one(
        &mut self,
        root: &HostRoot,
        config: &MachineConfig,
        plan: &ApplyPlan,
    ) -> Result<()> {
        for step in &plan.steps {
            let next = plan_repair(root, config)?.plan.only(&step.path);
            match transaction::commit_possible(root, next) {
                Ok(done) => self.add(done),
                Err(error) => {
                    self.not_healed.push(format!("cannot heal {:?}: {error:#}", step.path));
                }
            }
        }
        Ok(())
    }
}
