//! The journal: what is about to happen, on disk before it happens.
//!
//! | file in `/etc` | says |
//! |---|---|
//! | `.machinist-journal.new` | nothing yet: it is being written |
//! | `.machinist-journal` | a change has begun and is not complete: undo it |
//! | `.machinist-journal.done` | a change is complete: remove what it left |
//!
//! It holds paths, permissions and digests, never contents. What was there before a change is kept
//! beside it in its own folder, under a name that the journal gives.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use machinist_core::apply::{ApplyPlan, FsTree as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::fault;
use super::root::Root;

/// The version of the format that is written here.
const VERSION: u32 = 1;
const FOLDER: &str = "/etc";
const NEW: &str = "/etc/.machinist-journal.new";
const BEGUN: &str = "/etc/.machinist-journal";
const DONE: &str = "/etc/.machinist-journal.done";

/// A plan that is being carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    /// The version of this format.
    version: u32,
    /// Makes the names of this change's files unlike all others.
    token: String,
    /// What is done.
    pub(super) plan: ApplyPlan,
}

/// How far a change had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is not complete.
    Begun,
    /// It is complete.
    Done,
}

impl Journal {
    /// The journal of a plan.
    pub(super) fn new(plan: ApplyPlan) -> Result<Self> {
        let digest = Sha256::digest(serde_json::to_vec(&plan)?);
        let token = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { version: VERSION, token, plan })
    }

    /// Where the new thing of a step waits.
    pub(super) fn new_path(&self, root: &Root, step: usize) -> String {
        root.beside(&self.plan.steps[step].path, &format!(".machinist-{}-{step}.new", self.token))
    }

    /// Where the old thing of a step is kept.
    pub(super) fn old_path(&self, root: &Root, step: usize) -> String {
        root.beside(&self.plan.steps[step].path, &format!(".machinist-{}-{step}.old", self.token))
    }

    /// Writes it to the disk: from now on the change has begun.
    pub(super) fn begin(&self, root: &Root) -> Result<()> {
        let write = || {
            let mut file = root.create(NEW)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fault::point();
            root.rename_new(NEW, BEGUN)?;
            root.sync_folder(FOLDER)
        };
        write().with_context(|| format!("cannot write the journal {BEGUN}"))
    }

    /// The change is complete.
    pub(super) fn commit(root: &Root) -> Result<()> {
        let commit = || {
            root.rename(BEGUN, DONE)?;
            fault::point();
            root.sync_folder(FOLDER).inspect_err(|_| {
                // Whether it is on the disk is not known: take it back.
                let _ = root.rename(DONE, BEGUN);
            })
        };
        commit().context("cannot mark the change as complete")
    }

    /// Removes it: there is nothing more to undo or to clean up.
    pub(super) fn end(root: &Root) -> Result<()> {
        let end = || {
            for path in [BEGUN, NEW, DONE] {
                root.remove(path)?;
            }
            root.sync_folder(FOLDER)
        };
        end().with_context(|| format!("cannot remove the journal {BEGUN}"))
    }

    /// Whether a run is under way, or has left something; nothing is touched.
    pub(super) fn is_there(root: &Root) -> Result<bool> {
        Ok(root.exists(BEGUN)? || root.exists(DONE)?)
    }

    /// The journal that an earlier run left, if it left one.
    pub(super) fn find(root: &Root) -> Result<Option<(Self, Stage)>> {
        root.remove(NEW).with_context(|| format!("cannot remove {NEW}"))?;
        for (path, stage) in [(BEGUN, Stage::Begun), (DONE, Stage::Done)] {
            if root.exists(path).with_context(|| format!("cannot read {path}"))? {
                let bytes = root.read(path)?;
                let journal: Option<Self> = serde_json::from_slice(&bytes).ok();
                let journal = journal.filter(|journal| journal.version == VERSION);
                let journal = journal.with_context(|| {
                    format!(
                        "{path}: this journal cannot be read; a newer machinist may have written it: run that one, or look at it and remove it by hand"
                    )
                })?;
                return Ok(Some((journal, stage)));
            }
        }
        Ok(None)
    }
}
