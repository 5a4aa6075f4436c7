//! The quarantine: steps of a change that could not be undone, set aside so that the machine goes on.
//!
//! A quarantined path holds what a failed change put there. [`QuarantineView`] shows the tree as if the
//! step had been undone. So the path is no drift, a plan leaves it alone unless a config really changes
//! it, and a plan that does change it is refused. The shell tries again to undo the steps before each
//! change of the disk and while the machine is degraded.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::fs_node::{ContentSource, FsNode};
use super::obstacle::{Obstacle, ObstructedPath, describe_obstructed};
use super::overlay::parent_dir;
use super::tree::{FsTree, FsTreeError};
use super::{ApplyPlan, DiskStep};
use crate::versioned::{self, VersionedFileError};

/// The file. It is next to the journal, because a machine that can have a journal can have it too.
pub const QUARANTINE_PATH: &str = "/etc/.machinist-journal.quarantine";
/// The version of the file that this version writes.
const VERSION: u32 = 1;

/// What is left to do for a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RemainingWork {
    /// The change failed or was interrupted, and the path is not as it was.
    Undo,
    /// The change is complete, and a file with its old contents is left over.
    CleanUp,
}

/// A step that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuarantinedStep {
    /// The step.
    pub step: DiskStep,
    /// What is left to do.
    pub work: RemainingWork,
    /// Where the old file is kept.
    pub old_path: String,
    /// Where the new file was prepared.
    pub new_path: String,
    /// What kept the step from being undone.
    pub obstacle: Obstacle,
}

impl QuarantinedStep {
    /// The path and what keeps it from being changed.
    #[must_use]
    pub fn obstructed(&self) -> ObstructedPath {
        ObstructedPath { path: self.step.path.clone(), obstacle: self.obstacle.clone() }
    }

    /// Whether the tree has to be shown as if this step had been undone. A directory that a failed
    /// change created does no harm: the next plan may use it.
    fn hides_node(&self) -> bool {
        let is_directory = matches!(self.step.to, FsNode::Directory { .. });
        self.work == RemainingWork::Undo && !(is_directory && self.step.from.is_absent())
    }
}

/// All steps that were set aside, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// The steps.
    pub steps: Vec<QuarantinedStep>,
}

impl Quarantine {
    /// Reads the file.
    pub fn from_json(bytes: &[u8]) -> Result<Self, VersionedFileError> {
        versioned::from_json(QUARANTINE_PATH, VERSION, bytes)
    }

    /// The bytes of the file.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        versioned::to_json(VERSION, self)
    }

    /// Adds a step. One that is already there, because a crash repeated the undo, is replaced.
    pub fn add(&mut self, added: QuarantinedStep) {
        let same = |known: &&mut QuarantinedStep| {
            (&known.step.path, &known.old_path) == (&added.step.path, &added.old_path)
        };
        match self.steps.iter_mut().find(same) {
            Some(known) => *known = added,
            None => self.steps.push(added),
        }
    }

    /// The paths that are not as they should be.
    #[must_use]
    pub fn obstructed(&self) -> Vec<ObstructedPath> {
        let undo = self.steps.iter().filter(|one| one.work == RemainingWork::Undo);
        undo.map(QuarantinedStep::obstructed).collect()
    }

    /// Why the machine is degraded, if it is.
    #[must_use]
    pub fn degraded_reason(&self) -> Option<String> {
        let paths = self.obstructed();
        (!paths.is_empty()).then(|| {
            let paths = describe_obstructed(&paths);
            format!("an earlier change could not be undone completely, and is tried again: {paths}")
        })
    }

    /// The quarantined paths that a plan would change.
    #[must_use]
    pub fn touched_by(&self, plan: &ApplyPlan) -> Vec<ObstructedPath> {
        let is_touched = |one: &&QuarantinedStep| {
            one.hides_node() && plan.steps.iter().any(|step| step.path == one.step.path)
        };
        self.steps.iter().filter(is_touched).map(QuarantinedStep::obstructed).collect()
    }

    /// The oldest step of a path: its old file is what the path should hold.
    fn hidden(&self, path: &str) -> Option<&QuarantinedStep> {
        self.steps.iter().find(|one| one.hides_node() && one.step.path == path)
    }
}

impl fmt::Debug for QuarantineView<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("QuarantineView")
            .field("quarantine", self.quarantine)
            .finish_non_exhaustive()
    }
}

/// A tree as if every quarantined step had been undone.
pub struct QuarantineView<'a> {
    tree: &'a dyn FsTree,
    quarantine: &'a Quarantine,
}

impl<'a> QuarantineView<'a> {
    /// The view of a tree.
    #[must_use]
    pub fn new(tree: &'a dyn FsTree, quarantine: &'a Quarantine) -> Self {
        Self { tree, quarantine }
    }
}

impl FsTree for QuarantineView<'_> {
    fn node(&self, path: &str) -> Result<FsNode, FsTreeError> {
        let Some(hidden) = self.quarantine.hidden(path) else { return self.tree.node(path) };
        let mut node = hidden.step.from.clone();
        if let FsNode::File { content, .. } = &mut node {
            content.source = ContentSource::Path(hidden.old_path.clone());
        }
        Ok(node)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, FsTreeError> {
        match self.quarantine.hidden(path) {
            Some(QuarantinedStep { step, old_path, .. })
                if matches!(step.from, FsNode::File { .. }) =>
            {
                self.tree.read(old_path)
            }
            Some(_) => Err(FsTreeError { path: path.to_owned(), problem: "no file".to_owned() }),
            None => self.tree.read(path),
        }
    }

    fn entries(&self, directory: &str) -> Result<Vec<String>, FsTreeError> {
        let mut names = self.tree.entries(directory)?;
        let name_in = |path: &str| {
            (parent_dir(path) == directory)
                .then(|| path.rsplit('/').next().unwrap_or_default().to_owned())
        };
        for one in &self.quarantine.steps {
            for own in [&one.old_path, &one.new_path].into_iter().filter_map(|path| name_in(path)) {
                names.retain(|name| *name != own);
            }
            let Some(own) = name_in(&one.step.path).filter(|_| one.hides_node()) else { continue };
            let is_there = self.quarantine.hidden(&one.step.path);
            names.retain(|name| *name != own);
            if is_there.is_some_and(|oldest| !oldest.step.from.is_absent()) {
                names.push(own);
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests;
