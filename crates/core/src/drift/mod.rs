//! Drift: what differs between the config that a machine has and its disk.
//!
//! ```text
//! config ─ Reference::new ─→ Reference ─┐
//!                                 tree ─┴ check ─→ findings ─ reason ─→ the words on the Node
//! ```
//!
//! The same check is made before an update (is the machine as its config says?), after one (has all
//! of it arrived?) and whenever a managed path is touched. The words are those of the real daemon,
//! as far as it has words for it; contents are never in them.
//!
//! | file | decides |
//! |---|---|
//! | `finding` | what a difference is called, and in which words it is told |
//! | `policy` | whether it is only reported or put right |
//! | `watched` | which names in which folders have to be watched |

mod finding;
mod go_mode;
mod policy;
#[cfg(test)]
mod tests;
mod watched_paths;

pub use finding::{DriftFinding, DriftKind, DriftSeverity};
pub use policy::{DriftPolicy, DriftPolicyError};
pub use watched_paths::{WatchedNames, WatchedPaths};

use crate::api::MachineConfig;
use crate::apply::{self, ApplyError, ApplyPlan, FileContent, FsTree, HostDefaults};
use crate::ignition::schema::Config;
use crate::ignition::{self, IgnitionError};

/// How many paths a reason names.
const MAX_NAMED_PATHS: usize = 10;

/// What a machine is held against: its config, with digests in place of the contents of files.
#[derive(Debug, Clone)]
pub struct DriftReference {
    /// The name of the config.
    pub name: String,
    config: Config,
    contents: Vec<FileContent>,
}

/// Why there is nothing to hold a machine against.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// The config cannot be read.
    #[error("failed to parse Ignition for validation: {0}")]
    Ignition(#[from] IgnitionError),
    /// A file of it cannot be read.
    #[error(transparent)]
    Contents(#[from] ApplyError),
}

impl DriftReference {
    /// What a config says.
    pub fn new(machine_config: &MachineConfig) -> Result<Self, ReferenceError> {
        let (config, contents) = apply::split_contents(read(machine_config)?)?;
        let name = machine_config.metadata.name.clone().unwrap_or_default();
        Ok(Self { name, config, contents })
    }
}

/// What a look at a machine has found.
#[derive(Debug, Default)]
pub struct DriftReport {
    /// The differences, in the order of the config.
    pub findings: Vec<DriftFinding>,
    /// What to watch, to see the next one.
    pub watched: WatchedPaths,
}

/// Looks at everything that a config manages.
#[must_use]
pub fn check_drift(
    reference: &DriftReference,
    tree: &dyn FsTree,
    style: HostDefaults,
) -> DriftReport {
    let verified = apply::verify(&reference.config, &reference.contents, tree, style);
    let watched = watched_paths::watched_paths(&reference.config, &verified, tree);
    let managed = verified.managed.iter().filter_map(DriftFinding::of);
    let units = verified.enablement.into_iter().map(DriftFinding::enablement);
    DriftReport { findings: managed.chain(units).collect(), watched }
}

/// Why a machine is degraded, when it is: the first finding in the words of the real daemon, then
/// the paths of the others.
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

/// Why a machine must not be changed: it is not as its config says. Given before an update, unless
/// the force file is there.
#[must_use]
pub fn blocks_update_reason(reference: &str, findings: &[DriftFinding]) -> Option<String> {
    let reason = degraded_reason(findings)?;
    Some(format!("unexpected on-disk state validating against {reference}: {reason}"))
}

/// The plan that puts a machine right which has drifted from its config.
pub fn plan_repair(
    machine_config: &MachineConfig,
    tree: &dyn FsTree,
    style: HostDefaults,
) -> Result<ApplyPlan, ReferenceError> {
    let config = read(machine_config)?;
    Ok(apply::plan_repair(machine_config, &config, tree, style)?)
}

fn read(machine_config: &MachineConfig) -> Result<Config, IgnitionError> {
    match machine_config.spec.config.as_ref().filter(|raw| !raw.is_null()) {
        Some(raw) => ignition::parse_and_upgrade(raw).map(|(config, _)| config),
        None => Ok(Config::default()),
    }
}
