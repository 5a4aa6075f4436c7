//! Plans the repair of everything that `verify` finds. Paths are repaired independently: one that must not
//! be touched, such as a pipe that someone put in the place of a file, does not keep another from being
//! repaired.

use std::collections::BTreeMap;

use super::error::ApplyError;
use super::fs_node::FsNode;
use super::managed_paths::{self, DesiredPath};
use super::overlay::TreeOverlay;
use super::tree::FsTree;
use super::verify::CLUSTER_MANAGED_FILES;
use super::{ApplyPlan, HostBaseline, HostDefaults, baseline, originals, steps, systemd};
use crate::api::MachineConfig;
use crate::ignition::schema::{Config, Unit};

/// A repair.
#[derive(Debug, Default)]
pub struct RepairPlan {
    /// What is repaired.
    pub plan: ApplyPlan,
    /// What cannot be repaired: each with the path and the remedy.
    pub not_repaired: Vec<String>,
}

/// Plans the repair.
///
/// # Errors
/// The daemon's own records cannot be read or written.
pub fn plan_repair(
    machine_config: &MachineConfig,
    config: &Config,
    tree: &dyn FsTree,
    defaults: HostDefaults,
) -> Result<RepairPlan, ApplyError> {
    let mut view = TreeOverlay::new(tree, defaults);
    let mut record = baseline::read(&mut view)?;
    let mut problems = Vec::new();
    let mut wanted = managed_paths::readable_desired_paths(config, &mut view, &mut problems);
    let managed: BTreeMap<_, _> =
        wanted.iter().map(|want| (want.path.clone(), want.origin)).collect();
    wanted.retain(|want: &DesiredPath| !CLUSTER_MANAGED_FILES.contains(&want.path.as_str()));
    for want in &wanted {
        problems.extend(originals::take_over_one(&managed, want, &mut view).err());
    }
    let notes = repair_units(config, &mut view, &mut record, &mut problems);
    super::restrict_kubeconfig(&mut view, &mut record)?;
    record.write(&mut view)?;
    let name = machine_config.metadata.name.clone().unwrap_or_default();
    let plan =
        ApplyPlan { from: name.clone(), to: name, steps: steps::ordered_steps(view)?, notes };
    let mut not_repaired: Vec<String> = problems.iter().map(ToString::to_string).collect();
    not_repaired.dedup();
    Ok(RepairPlan { plan, not_repaired })
}

/// Removes masks of others, then enables and disables units. Returns notes.
fn repair_units(
    config: &Config,
    view: &mut TreeOverlay,
    record: &mut HostBaseline,
    problems: &mut Vec<ApplyError>,
) -> Vec<String> {
    for unit in &config.systemd.units {
        match systemd::foreign_mask(unit, view) {
            Ok(Some(mask)) => view.set(&mask, FsNode::Absent),
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    if let Ok(notes) = systemd::reapply_enablement(config, view, record) {
        return notes;
    }
    // One of them cannot be enabled: each on its own. What was done before that does no harm twice.
    let mut notes = Vec::new();
    for unit in &config.systemd.units {
        match systemd::reapply_enablement(&only(unit), view, record) {
            Ok(more) => notes.extend(more),
            Err(problem) => problems.push(problem),
        }
    }
    notes
}

fn only(unit: &Unit) -> Config {
    let mut config = Config::default();
    config.systemd.units.push(unit.clone());
    config
}
