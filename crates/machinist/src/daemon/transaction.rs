//! The transaction engine: recovers an interrupted change, plans a change, and commits it with a journal.
//!
//! A change is made completely or not at all, whatever interrupts it. Called by the daemon
//! (`agent::disk`), by `once`, by the first boot and by `drift::heal`. `apply` performs the steps.

use std::fmt;

use anyhow::{Context as _, Result, anyhow};
use machinist_core::api::MachineConfig;
use machinist_core::apply::{self, ApplyPlan, DiskStep, FsNode};
use machinist_core::diff::parse_both;
use serde::Serialize;

use super::journal::{Journal, JournalStage};
use super::root::{HostRoot, host_defaults};

/// An interrupted change that was recovered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// The config before the change.
    pub from: String,
    /// The config that the change led to.
    pub to: String,
    /// How it was recovered.
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

/// How an interrupted change was recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RecoveryOutcome {
    /// The root is as it was before the change.
    #[serde(rename = "undone")]
    RolledBack,
    /// The change was complete; its leftovers were removed.
    Finished,
}

/// One change of the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FsChange {
    /// What is done.
    pub action: FsAction,
    /// The path.
    pub path: String,
}

/// What is done at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FsAction {
    /// A directory is created.
    #[serde(rename = "makeFolder")] // words: keep, scripts read it
    MakeDirectory,
    /// A new file is written.
    #[serde(rename = "write")]
    Create,
    /// A file or link is replaced.
    Replace,
    /// A link is created.
    Link,
    /// Only permissions or owner change.
    SetPermissions,
    /// Something is removed.
    Remove,
}

impl FsAction {
    /// The name in logs and JSON output.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MakeDirectory => "makeDirectory",
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Link => "link",
            Self::SetPermissions => "setPermissions",
            Self::Remove => "remove",
        }
    }
}

/// Recovers an interrupted change, if there is one.
pub fn recover(root: &HostRoot) -> Result<Option<Recovery>> {
    let Some((journal, stage)) = Journal::find(root)? else { return Ok(None) };
    let outcome = match stage {
        JournalStage::Begun => {
            super::apply::undo(root, &journal).context(
                "an interrupted change cannot be undone now; its journal is kept, and the next run tries again",
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

/// Plans the change of a root from one config to another.
pub(super) fn plan(root: &HostRoot, old: &MachineConfig, new: &MachineConfig) -> Result<ApplyPlan> {
    let change = parse_both(old, new).ok_or_else(|| {
        let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
        anyhow!("spec.config of {} or {} is not an Ignition config", name(old), name(new))
    })?;
    Ok(apply::plan_apply(old, new, &change, root, host_defaults())?)
}

/// Performs a plan, completely or not at all. Returns a note if leftovers could not be removed.
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
                "the change failed and could not all be undone ({second:#}); its journal is kept, and the next run tries again"
            ))),
        };
    }
    // The change is made whatever happens to its leftovers; the next run finds them.
    let cleaned = super::apply::clean_up(root, &journal).and_then(|()| Journal::remove(root));
    Ok(cleaned.err().map(|error| {
        format!("the change is made, but its leftovers are not removed yet: {error:#}")
    }))
}

/// What a step does, for people.
pub(super) fn describe(step: &DiskStep) -> FsChange {
    let action = match (&step.from, &step.to) {
        (from, to) if from.differs_in_meta_only(to) => FsAction::SetPermissions,
        (_, FsNode::Directory { .. }) => FsAction::MakeDirectory,
        (_, FsNode::Absent | FsNode::Special) => FsAction::Remove,
        (FsNode::Absent, FsNode::Link { .. }) => FsAction::Link,
        (FsNode::Absent, FsNode::File { .. }) => FsAction::Create,
        (_, FsNode::File { .. } | FsNode::Link { .. }) => FsAction::Replace,
    };
    FsChange { action, path: step.path.clone() }
}
