//! Drift: differences between the current config of a machine and its disk.
//!
//! ```text
//! config ─ DriftReference::new ─→ DriftReference ─┐
//!                                          tree ─┴ check_drift ─→ findings ─ degraded_reason ─→ Node
//! ```
//!
//! The same check runs before an update (is the machine as its config says?), after one (is everything in
//! place?) and whenever a managed path is touched. Descriptions are MCO's where it has one; they never
//! contain contents. Called by `daemon/drift` in the shell.
//!
//! | module | decides |
//! |---|---|
//! | `finding` | kind, severity and description of a difference |
//! | `heal_limit` | how often a path is healed |
//! | `live_diff` | the lines that differ, without secrets and in a limited size |
//! | `conflict` | what happens to a path that drifts as often as it is healed |
//! | `policy` | whether it is only reported or also healed |
//! | `watched_paths` | which names in which directories have to be watched |

mod conflict;
mod finding;
mod go_mode;
mod heal_limit;
mod live_diff;
mod policy;
#[cfg(test)]
mod tests;
mod watched_paths;

pub use crate::node::{DriftKind, DriftedPath};
pub use conflict::{
    ConflictStep, DriftConflictPolicy, DriftConflictPolicyError, describe_conflicts,
};
pub use finding::{DriftFinding, DriftSeverity};
pub use heal_limit::{
    HEAL_WINDOW, HEALS_BEFORE_CONFLICT, HealConflict, HealLimit, MAX_HEAL_PAUSE, PathWriter,
    heal_pause,
};
pub use live_diff::{LiveChange, LiveDiff, live_diff};
pub use policy::{DriftPolicy, DriftPolicyError};
pub use watched_paths::{WatchedNames, WatchedPaths};

use std::collections::BTreeSet;

use crate::api::MachineConfig;
use crate::apply::{self, ApplyError, FileContent, FsTree, HostDefaults, RepairPlan};
use crate::ignition::etcd_index::substitute_index;
use crate::ignition::schema::Config;
use crate::ignition::{self, IgnitionError};

/// How many paths a reason names.
const MAX_NAMED_PATHS: usize = 10;

/// What a machine is compared with: its config, with digests instead of the contents of files.
#[derive(Debug, Clone)]
pub struct DriftReference {
    /// The name of the config.
    pub name: String,
    config: Config,
    contents: Vec<FileContent>,
}

/// Why a config cannot be compared with.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// The config cannot be read.
    #[error("failed to parse Ignition for validation: {0}")]
    Ignition(#[from] IgnitionError),
    /// A file in it cannot be decoded.
    #[error(transparent)]
    Contents(#[from] ApplyError),
}

impl DriftReference {
    /// Prepares a config for comparisons with a machine. `index` is that of its etcd member
    /// ([`apply::member_index`]).
    pub fn new(machine_config: &MachineConfig, index: Option<u16>) -> Result<Self, ReferenceError> {
        let (config, contents) = apply::split_contents(read(machine_config, index)?)?;
        let name = machine_config.metadata.name.clone().unwrap_or_default();
        Ok(Self { name, config, contents })
    }
}

/// The result of a check.
#[derive(Debug, Default)]
pub struct DriftReport {
    /// The differences, in the order of the config.
    pub findings: Vec<DriftFinding>,
    /// The paths that the config manages.
    pub managed: BTreeSet<String>,
    /// What to watch to notice the next difference.
    pub watched: WatchedPaths,
}

/// Compares everything that a config manages.
#[must_use]
pub fn check_drift(
    reference: &DriftReference,
    tree: &dyn FsTree,
    defaults: HostDefaults,
) -> DriftReport {
    let verified = apply::verify(&reference.config, &reference.contents, tree, defaults);
    let watched = watched_paths::watched_paths(&reference.config, &verified, tree);
    let differing = verified.managed.iter().filter_map(DriftFinding::of);
    let paths = verified.managed.iter().map(|managed| managed.path.clone()).collect();
    let units = verified.enablement.into_iter().map(DriftFinding::enablement);
    DriftReport { findings: differing.chain(units).collect(), managed: paths, watched }
}

/// Whether everything that differs from the current config is as the next one wants it: a person repaired the machine by
/// hand and corrected the config. `next` compares the same disk with the next config.
#[must_use]
pub fn is_repaired_for(findings: &[DriftFinding], next: &DriftReport) -> bool {
    let is_as_wanted = |finding: &DriftFinding| {
        let path = &finding.path;
        let differs = next.findings.iter().any(|other| other.path == *path);
        match next.managed.contains(path) {
            true => !differs,
            // What the next config does not have goes anyway, and here it is gone.
            false => finding.kind == DriftKind::Missing && !differs,
        }
    };
    let mut drifted = findings.iter().filter(|finding| finding.severity == DriftSeverity::Drift);
    drifted.all(is_as_wanted)
}

/// What a Node names of the findings that degrade the machine. `by` gives the process that changed a path.
#[must_use]
pub fn drifted_paths(
    findings: &[DriftFinding],
    by: impl Fn(&DriftFinding) -> Option<String>,
) -> Vec<DriftedPath> {
    let drifted = findings.iter().filter(|finding| finding.severity == DriftSeverity::Drift);
    drifted
        .map(|finding| DriftedPath {
            path: finding.path.clone(),
            kind: finding.kind,
            by: by(finding),
        })
        .collect()
}

/// Why a machine is degraded, if it is: the first finding in MCO's words, then the paths of the others.
#[must_use]
pub fn degraded_reason(findings: &[DriftFinding]) -> Option<String> {
    let mut drifted = findings.iter().filter(|finding| finding.severity == DriftSeverity::Drift);
    let first = drifted.next()?;
    let others: Vec<&DriftFinding> = drifted.collect();
    if others.is_empty() {
        return Some(first.message.clone());
    }
    let names: Vec<String> =
        others.iter().take(MAX_NAMED_PATHS).map(|finding| format!("{:?}", finding.path)).collect();
    let more = if others.len() > MAX_NAMED_PATHS { ", …" } else { "" };
    Some(format!("{first}; and {} more: {}{more}", others.len(), names.join(", ")))
}

/// Why a machine must not be updated: its disk differs from its config. Checked before an update unless
/// the force file is there.
#[must_use]
pub fn blocks_update_reason(reference: &str, findings: &[DriftFinding]) -> Option<String> {
    let reason = degraded_reason(findings)?;
    Some(format!("unexpected on-disk state validating against {reference}: {reason}"))
}

/// Whether healing again would do nothing: no drift is left, or nothing was healed and the drift is the same
/// as before. The same drift after a heal that did something is new: someone has changed the file again.
#[must_use]
pub fn is_settled(healed: usize, before: &[DriftFinding], left: &[DriftFinding]) -> bool {
    degraded_reason(left).is_none() || (healed == 0 && before == left)
}

/// The plan that repairs a machine that has drifted from its config, path by path.
pub fn plan_repair(
    machine_config: &MachineConfig,
    tree: &dyn FsTree,
    defaults: HostDefaults,
) -> Result<RepairPlan, ReferenceError> {
    let config = read(machine_config, apply::member_index(tree))?;
    Ok(apply::plan_repair(machine_config, &config, tree, defaults)?)
}

fn read(machine_config: &MachineConfig, index: Option<u16>) -> Result<Config, IgnitionError> {
    let mut config = match machine_config.spec.config.as_ref().filter(|raw| !raw.is_null()) {
        Some(raw) => ignition::parse_and_upgrade(raw).map(|(config, _)| config)?,
        None => Config::default(),
    };
    if let Some(index) = index {
        substitute_index(&mut config, index);
    }
    Ok(config)
}
