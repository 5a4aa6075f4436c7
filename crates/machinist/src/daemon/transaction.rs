//! The transaction engine: recovers an interrupted change, plans a change, and commits it with a journal.
//!
//! A change is made completely or not at all, whatever interrupts it. Called by the daemon
//! (`agent::disk`), by `once`, by the first boot and by `drift::heal`. `apply` performs the steps.

use std::fmt;

use anyhow::{Result, anyhow};
use machinist_core::api::MachineConfig;
use machinist_core::apply::{
    self, ApplyPlan, DiskStep, FsNode, ObstructedPath, QuarantineView, QuarantinedStep,
};
use machinist_core::diff::parse_both;
use machinist_core::ignition::schema::Config;
use serde::Serialize;

use super::journal::{Journal, JournalStage};
use super::os::abilities::{keys_files, reads_certs_d};
use super::root::{HostRoot, host_defaults};
use super::unreadable_files::{self, Unreadable, UnreadableFile};
use super::{preflight, quarantine};

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
    /// The paths that could not be restored, each with the reason and the remedy. They are tried again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set_aside: Vec<String>,
}

impl fmt::Display for Recovery {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, outcome, set_aside } = self;
        let (when, became) = match outcome {
            RecoveryOutcome::RolledBack => ("", "undone"),
            RecoveryOutcome::Finished => (" at its end", "finished"),
        };
        write!(
            formatter,
            "a change from {from} to {to} had been interrupted{when}: it was {became}"
        )?;
        if !set_aside.is_empty() {
            write!(formatter, ", except for: {}", set_aside.join("; "))?;
        }
        Ok(())
    }
}

/// What a recovery found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The interrupted change, if there was one.
    pub change: Option<Recovery>,
    /// Damaged records, which were moved away.
    pub unreadable: Vec<UnreadableFile>,
}

impl Recovered {
    /// What was found, for people; `None` if nothing was.
    #[must_use]
    pub fn report(&self) -> Option<String> {
        let files = self.unreadable.iter().map(ToString::to_string);
        let found: Vec<String> = files.chain(self.change.iter().map(ToString::to_string)).collect();
        (!found.is_empty()).then(|| found.join("; "))
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

/// A change that was refused, because some of its paths cannot be changed.
#[derive(Debug, thiserror::Error)]
#[error("{}", apply::describe_obstructed(.0))]
pub(super) struct ChangeObstructed(Vec<ObstructedPath>);

/// A change that was made as far as possible.
#[derive(Debug, Default)]
pub(super) struct PartialChange {
    /// What was changed.
    pub(super) changes: Vec<FsChange>,
    /// What could not be changed.
    pub(super) obstructed: Vec<ObstructedPath>,
    /// What could not be cleaned up.
    pub(super) note: Option<String>,
}

/// Recovers an interrupted change, if there is one, and tries again what an earlier recovery set aside.
///
/// # Errors
/// The journal is that of a newer version, or nothing can be written next to it. A path that cannot be restored is no
/// error: it is set aside, and [`quarantined`] returns it. Nor is a damaged record, which is moved away.
pub fn recover(root: &HostRoot) -> Result<Recovered> {
    let unreadable = unreadable_files::set_aside(root, Unreadable::Damaged)?;
    quarantine::retry(root)?;
    Ok(Recovered { change: recover_change(root)?, unreadable })
}

fn recover_change(root: &HostRoot) -> Result<Option<Recovery>> {
    let Some((journal, stage)) = Journal::find(root)? else { return Ok(None) };
    let (left, outcome) = match stage {
        JournalStage::Begun => (super::apply::undo(root, &journal), RecoveryOutcome::RolledBack),
        JournalStage::Committed => {
            (super::apply::clean_up(root, &journal), RecoveryOutcome::Finished)
        }
    };
    let set_aside = left.iter().map(|one| one.obstructed().to_string()).collect();
    quarantine::set_aside(root, left)?;
    Journal::remove(root)?;
    let ApplyPlan { from, to, .. } = journal.plan;
    Ok(Some(Recovery { from, to, outcome, set_aside }))
}

/// The paths that an earlier change left wrong and that cannot be restored yet.
pub fn quarantined(root: &HostRoot) -> Result<Vec<ObstructedPath>> {
    Ok(quarantine::read(root)?.obstructed())
}

/// Plans the change of a root from one config to another.
pub(super) fn plan(root: &HostRoot, old: &MachineConfig, new: &MachineConfig) -> Result<ApplyPlan> {
    let change = parse_both(old, new).ok_or_else(|| {
        let name = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
        anyhow!("spec.config of {} or {} is not an Ignition config", name(old), name(new))
    })?;
    let quarantine = quarantine::read(root)?;
    let tree = QuarantineView::new(root, &quarantine);
    let mut defaults = host_defaults();
    let users = |config: &Config| -> Vec<String> {
        config.passwd.users.iter().map(|user| user.name.clone()).collect()
    };
    let names = [users(&change.old), users(&change.new)].concat();
    defaults.has_containerd = reads_certs_d(root.path());
    // Asking sshd takes a moment, and most changes are not about users.
    if *change.old.passwd.users != *change.new.passwd.users {
        defaults.keys_files = keys_files(root.path(), names.iter().map(String::as_str));
    }
    Ok(apply::plan_apply(old, new, &change, &tree, defaults)?)
}

/// The paths of a plan that cannot be changed.
fn obstructed(root: &HostRoot, plan: &ApplyPlan) -> Result<Vec<ObstructedPath>> {
    let mut paths = quarantine::read(root)?.touched_by(plan);
    for found in preflight::obstructed_paths(root, plan) {
        if !paths.iter().any(|known| known.path == found.path) {
            paths.push(found);
        }
    }
    Ok(paths)
}

/// Refuses a plan with a path that cannot be changed. Writes nothing.
pub(super) fn check_obstacles(root: &HostRoot, plan: &ApplyPlan) -> Result<()> {
    let paths = obstructed(root, plan)?;
    if paths.is_empty() { Ok(()) } else { Err(ChangeObstructed(paths).into()) }
}

/// Performs a plan, completely or not at all. Returns a note if leftovers could not be removed.
pub(super) fn commit(root: &HostRoot, plan: ApplyPlan) -> Result<Option<String>> {
    check_obstacles(root, &plan)?;
    let journal = Journal::new(plan)?;
    let done = journal
        .begin(root)
        .and_then(|()| super::apply::execute(root, &journal))
        .and_then(|()| Journal::commit(root));
    if let Err(error) = done {
        return Err(undo_failed(root, &journal, error));
    }
    // The change is made whatever happens to its leftovers; the next run finds them.
    let left = super::apply::clean_up(root, &journal);
    let note = (!left.is_empty()).then(|| {
        let paths: Vec<ObstructedPath> = left.iter().map(QuarantinedStep::obstructed).collect();
        let paths = apply::describe_obstructed(&paths);
        format!("the change is made, but its leftovers are not removed yet: {paths}")
    });
    let ended = quarantine::set_aside(root, left).and_then(|()| Journal::remove(root));
    Ok(note.or(ended
        .err()
        .map(|error| format!("the change is made, but its journal is not removed yet: {error:#}"))))
}

/// Undoes a change that failed, and says how that went.
fn undo_failed(root: &HostRoot, journal: &Journal, error: anyhow::Error) -> anyhow::Error {
    let left = super::apply::undo(root, journal);
    let paths: Vec<ObstructedPath> = left.iter().map(QuarantinedStep::obstructed).collect();
    match quarantine::set_aside(root, left).and_then(|()| Journal::remove(root)) {
        Ok(()) if paths.is_empty() => {
            error.context("nothing was changed: what had been done was undone")
        }
        Ok(()) => {
            let paths = apply::describe_obstructed(&paths);
            error.context(format!(
                "the change failed and was undone, except for paths that are tried again: {paths}"
            ))
        }
        Err(second) => error.context(format!(
            "the change failed and could not all be undone ({second:#}); its journal is kept, and the next run tries again"
        )),
    }
}

/// Performs a plan without the paths that cannot be changed, and returns those.
pub(super) fn commit_possible(root: &HostRoot, plan: ApplyPlan) -> Result<PartialChange> {
    let obstructed = obstructed(root, &plan)?;
    let plan = plan.without(obstructed.iter().map(|one| one.path.as_str()));
    let changes = plan.steps.iter().map(describe).collect();
    let note = if plan.steps.is_empty() { None } else { commit(root, plan)? };
    Ok(PartialChange { changes, obstructed, note })
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
