//! One config to one root: what an interrupted run left is put right, the change is checked,
//! planned, written down, and done.

use std::fmt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use machinist_core::api::MachineConfig;
use machinist_core::api::names::path::{CURRENT_CONFIG, CURRENT_IMAGE};
use machinist_core::apply::{
    self, ApplyPlan, DiskStep, FileOwner, FsNode, FsTree as _, HostDefaults, empty_config,
};
use machinist_core::os::with_layered_image;
use machinist_core::reconcile_check::{self, ValidationOverrides, check_reconcilable};
use serde::Serialize;

use super::journal::{Journal, JournalStage};
use super::root::HostRoot;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TransactionReport {
    /// The config that the root had.
    pub from: String,
    /// The config that it was to have.
    pub to: String,
    /// What an earlier run had left, and what became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovered: Option<Recovery>,
    /// Why the change was refused; nothing was written then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What was done, in order.
    pub changes: Vec<FsChange>,
    /// What was left out or is odd, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A change that an earlier run did not end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// The config that the root had then.
    pub from: String,
    /// The config that it was to have.
    pub to: String,
    /// What became of it.
    pub outcome: RecoveryOutcome,
}

impl fmt::Display for Recovery {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, outcome } = self;
        let (when, became) = match outcome {
            RecoveryOutcome::RolledBack => ("", "undone"),
            RecoveryOutcome::Finished => (" at its end", "finished"),
        };
        write!(
            formatter,
            "a change from {from} to {to} had been interrupted{when}: it was {became}"
        )
    }
}

/// What became of a change that was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RecoveryOutcome {
    /// The root is as it was before it.
    RolledBack,
    /// It was complete; what it had left was cleaned up.
    Finished,
}

/// One thing that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FsChange {
    /// What.
    pub action: FsAction,
    /// Where.
    pub path: String,
}

/// What is done at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FsAction {
    /// A folder is made.
    MakeDirectory,
    /// A file is written that was not there.
    Create,
    /// A file or link is replaced.
    Replace,
    /// A link is made.
    Link,
    /// Only permissions or owner change.
    SetPermissions,
    /// Something is removed.
    Remove,
}

/// Puts right what an interrupted run has left.
pub fn recover(root: &HostRoot) -> Result<Option<Recovery>> {
    let Some((journal, stage)) = Journal::find(root)? else { return Ok(None) };
    let outcome = match stage {
        JournalStage::Begun => {
            super::apply::undo(root, &journal).context(
                "an earlier change was interrupted and cannot be undone now; the way back is kept, and the next run tries again",
            )?;
            RecoveryOutcome::RolledBack
        }
        JournalStage::Committed => {
            super::apply::clean_up(root, &journal)?;
            RecoveryOutcome::Finished
        }
    };
    Journal::remove(root)?;
    let ApplyPlan { from, to, .. } = journal.plan;
    Ok(Some(Recovery { from, to, outcome }))
}

/// Brings a root to a config.
pub fn apply_once(root: &HostRoot, new: &MachineConfig) -> Result<TransactionReport> {
    recover_and_apply(root, new, empty_config())
}

/// Brings a root to its first config, as Ignition would have. Only then FIPS mode may come: it is set
/// with the machine's first restart.
pub(super) fn apply_first_config(
    root: &HostRoot,
    new: &MachineConfig,
) -> Result<TransactionReport> {
    let mut nothing = empty_config();
    nothing.spec.fips = new.spec.fips;
    recover_and_apply(root, new, nothing)
}

fn recover_and_apply(
    root: &HostRoot,
    new: &MachineConfig,
    nothing: MachineConfig,
) -> Result<TransactionReport> {
    let recovered = recover(root)?;
    let said = recovered.as_ref().map(ToString::to_string);
    apply_config(root, new, nothing, recovered).map_err(|error| match said {
        // It happened, whatever became of this run.
        Some(said) => error.context(said),
        None => error,
    })
}

fn apply_config(
    root: &HostRoot,
    new: &MachineConfig,
    nothing: MachineConfig,
    recovered: Option<Recovery>,
) -> Result<TransactionReport> {
    let old = current_config(root)?.unwrap_or(nothing);
    let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
    let mut report = TransactionReport {
        from: name(&old),
        to: name(new),
        recovered,
        refused: None,
        changes: Vec::new(),
        notes: Vec::new(),
    };
    let change = match check_reconcilable(&old, new, ValidationOverrides::default()) {
        Ok(change) => change,
        Err(refusal) => {
            report.refused = Some(refusal.to_string());
            return Ok(report);
        }
    };
    let plan = plan(root, &old, new, &change)?;
    report.changes = plan.steps.iter().map(describe).collect();
    report.notes = apply::not_applied_here(new).into_iter().chain(plan.notes.clone()).collect();
    if !plan.steps.is_empty()
        && let Some(note) = commit(root, plan)?
    {
        report.notes.push(note);
    }
    Ok(report)
}

/// Plans a change of a root.
pub(super) fn plan(
    root: &HostRoot,
    old: &MachineConfig,
    new: &MachineConfig,
    change: &reconcile_check::ConfigChange,
) -> Result<ApplyPlan> {
    Ok(apply::plan_apply(old, new, change, root, host_style())?)
}

/// Does what a plan says, or nothing. Gives what is left to say when it is done.
pub(super) fn commit(root: &HostRoot, plan: ApplyPlan) -> Result<Option<String>> {
    let journal = Journal::new(plan)?;
    let done = journal
        .begin(root)
        .and_then(|()| super::apply::execute(root, &journal))
        .and_then(|()| Journal::commit(root));
    if let Err(error) = done {
        return match super::apply::undo(root, &journal).and_then(|()| Journal::remove(root)) {
            Ok(()) => Err(error.context("nothing was changed: what had been done was undone")),
            Err(second) => Err(error.context(format!(
                "the change failed and could not all be undone ({second:#}); the way back is kept, and the next run tries again"
            ))),
        };
    }
    // The change is made whatever happens to its leavings; the next run finds them.
    let cleaned = super::apply::clean_up(root, &journal).and_then(|()| Journal::remove(root));
    Ok(cleaned.err().map(|error| {
        format!("the change is made, but its leavings are not removed yet: {error:#}")
    }))
}

/// The config that the root has, if it says so.
pub(super) fn current_config(root: &HostRoot) -> Result<Option<MachineConfig>> {
    match root.look(CURRENT_CONFIG).with_context(|| format!("cannot read {CURRENT_CONFIG}"))? {
        FsNode::File { .. } => {
            let bytes = root.read(CURRENT_CONFIG)?;
            let image = current_image(root)?;
            let with_image = |config| with_layered_image(config, image.as_deref());
            apply::parse_current_config(&bytes).map(with_image).map(Some).map_err(|error| {
                // Not the error's own words: they may hold a piece of the config.
                anyhow::anyhow!(
                    "{CURRENT_CONFIG}: not a MachineConfig (line {}, column {}): put the config back that the machine has, or remove the file to begin anew",
                    error.line(),
                    error.column()
                )
            })
        }
        FsNode::Absent => Ok(None),
        other => anyhow::bail!("{CURRENT_CONFIG}: this is {}, not a file: remove it", other.kind()),
    }
}

/// The image of the pool's own that the machine has, if it says so.
fn current_image(root: &HostRoot) -> Result<Option<String>> {
    if !root.exists(CURRENT_IMAGE).with_context(|| format!("cannot read {CURRENT_IMAGE}"))? {
        return Ok(None);
    }
    let text = String::from_utf8(root.read(CURRENT_IMAGE)?);
    let text = text.with_context(|| format!("{CURRENT_IMAGE}: not the name of an image"))?;
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}

/// How this host does things.
pub(super) fn host_style() -> HostDefaults {
    let owner = FileOwner {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    HostDefaults { owner, today: u32::try_from(seconds / 86_400).unwrap_or_default() }
}

/// What a step does, for people.
pub(super) fn describe(step: &DiskStep) -> FsChange {
    let action = match (&step.from, &step.to) {
        (from, to) if from.differs_in_meta_only(to) => FsAction::SetPermissions,
        (_, FsNode::Folder { .. }) => FsAction::MakeDirectory,
        (_, FsNode::Absent | FsNode::Special) => FsAction::Remove,
        (FsNode::Absent, FsNode::Link { .. }) => FsAction::Link,
        (FsNode::Absent, FsNode::File { .. }) => FsAction::Create,
        (_, FsNode::File { .. } | FsNode::Link { .. }) => FsAction::Replace,
    };
    FsChange { action, path: step.path.clone() }
}

/// Opens a root.
pub fn open_root(path: &Path) -> Result<HostRoot> {
    HostRoot::open(path)
}
