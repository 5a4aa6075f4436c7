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
mod watched;

pub use finding::{Finding, Kind, Severity};
pub use policy::{Policy, PolicyError};
pub use watched::{Names, Watched};

use crate::api::MachineConfig;
use crate::apply::{self, ApplyError, Content, Plan, Style, Tree};
use crate::ignition::schema::Config;
use crate::ignition::{self, IgnitionError};

/// How many paths a reason names.
const NAMED: usize = 10;

/// What a machine is held against: its config, with digests in place of the contents of files.
#[derive(Debug, Clone)]
pub struct Reference {
    /// The name of the config.
    pub name: String,
    config: Config,
    contents: Vec<Content>,
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

impl Reference {
    /// What a config says.
    pub fn new(machine_config: &MachineConfig) -> Result<Self, ReferenceError> {
        let (config, contents) = apply::split_contents(read(machine_config)?)?;
        let name = machine_config.metadata.name.clone().unwrap_or_default();
        Ok(Self { name, config, contents })
    }
}

/// What a look at a machine has found.
#[derive(Debug, Default)]
pub struct Checked {
    /// The differences, in the order of the config.
    pub findings: Vec<Finding>,
    /// What to watch, to see the next one.
    pub watched: Watched,
}

/// Looks at everything that a config manages.
#[must_use]
pub fn check(reference: &Reference, tree: &dyn Tree, style: Style) -> Checked {
    let verified = apply::verify(&reference.config, &reference.contents, tree, style);
    let watched = watched::watched(&reference.config, &verified, tree);
    let managed = verified.managed.iter().filter_map(Finding::of);
    let units = verified.enablement.into_iter().map(Finding::enablement);
    Checked { findings: managed.chain(units).collect(), watched }
}

/// Why a machine is degraded, when it is: the first finding in the words of the real daemon, then
/// the paths of the others.
#[must_use]
pub fn reason(findings: &[Finding]) -> Option<String> {
    let mut drifted = findings.iter().filter(|finding| finding.severity == Severity::Drift);
    let first = drifted.next()?;
    let others: Vec<&Finding> = drifted.collect();
    if others.is_empty() {
        return Some(first.message.clone());
    }
    let names: Vec<String> =
        others.iter().take(NAMED).map(|finding| format!("{:?}", finding.path)).collect();
    let more = if others.len() > NAMED { ", …" } else { "" };
    Some(format!("{first}; and {} more: {}{more}", others.len(), names.join(", ")))
}

/// Why a machine must not be changed: it is not as its config says. Given before an update, unless
/// the force file is there.
#[must_use]
pub fn unexpected(reference: &str, findings: &[Finding]) -> Option<String> {
    let reason = reason(findings)?;
    Some(format!("unexpected on-disk state validating against {reference}: {reason}"))
}

/// The plan that puts a machine right which has drifted from its config.
pub fn repair(
    machine_config: &MachineConfig,
    tree: &dyn Tree,
    style: Style,
) -> Result<Plan, ReferenceError> {
    let config = read(machine_config)?;
    Ok(apply::repair(machine_config, &config, tree, style)?)
}

fn read(machine_config: &MachineConfig) -> Result<Config, IgnitionError> {
    match machine_config.spec.config.as_ref().filter(|raw| !raw.is_null()) {
        Some(raw) => ignition::parse_and_upgrade(raw).map(|(config, _)| config),
        None => Ok(Config::default()),
    }
}
