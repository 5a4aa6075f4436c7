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

use super::fault_injection;
use super::root::HostRoot;

/// The version of the format that is written here.
const VERSION: u32 = 1;
const JOURNAL_DIR: &str = "/etc";
const TEMP_PATH: &str = "/etc/.machinist-journal.new";
const JOURNAL_PATH: &str = "/etc/.machinist-journal";
const COMMITTED_PATH: &str = "/etc/.machinist-journal.done";

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
pub(super) enum JournalStage {
    /// It is not complete.
    Begun,
    /// It is complete.
    Committed,
}

impl Journal {
    /// The journal of a plan.
    pub(super) fn new(plan: ApplyPlan) -> Result<Self> {
        let digest = Sha256::digest(serde_json::to_vec(&plan)?);
        let token = machinist_core::hex::hex(&digest[..8]);
        Ok(Self { version: VERSION, token, plan })
    }

    /// Where the new thing of a step waits.
    pub(super) fn new_path(&self, root: &HostRoot, step: usize) -> String {
        root.sibling(&self.plan.steps[step].path, &format!(".machinist-{}-{step}.new", self.token))
    }

    /// Where the old thing of a step is kept.
    pub(super) fn old_path(&self, root: &HostRoot, step: usize) -> String {
        root.sibling(&self.plan.steps[step].path, &format!(".machinist-{}-{step}.old", self.token))
    }

    /// Writes it to the disk: from now on the change has begun.
    pub(super) fn begin(&self, root: &HostRoot) -> Result<()> {
        let write = || {
            let mut file = root.create(TEMP_PATH)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fault_injection::point();
            root.rename_no_replace(TEMP_PATH, JOURNAL_PATH)?;
            root.fsync_directory(JOURNAL_DIR)
        };
        write().with_context(|| format!("cannot write the journal {JOURNAL_PATH}"))
    }

    /// The change is complete.
    pub(super) fn commit(root: &HostRoot) -> Result<()> {
        let commit = || {
            root.rename(JOURNAL_PATH, COMMITTED_PATH)?;
            fault_injection::point();
            root.fsync_directory(JOURNAL_DIR).inspect_err(|_| {
                // Whether it is on the disk is not known: take it back.
                let _ = root.rename(COMMITTED_PATH, JOURNAL_PATH);
            })
        };
        commit().context("cannot mark the change as complete")
    }

    /// Removes it: there is nothing more to undo or to clean up.
    pub(super) fn remove(root: &HostRoot) -> Result<()> {
        let end = || {
            for path in [JOURNAL_PATH, TEMP_PATH, COMMITTED_PATH] {
                root.remove(path)?;
            }
            root.fsync_directory(JOURNAL_DIR)
        };
        end().with_context(|| format!("cannot remove the journal {JOURNAL_PATH}"))
    }

    /// Whether a run is under way, or has left something; nothing is touched.
    pub(super) fn exists(root: &HostRoot) -> Result<bool> {
        Ok(root.exists(JOURNAL_PATH)? || root.exists(COMMITTED_PATH)?)
    }

    /// The journal that an earlier run left, if it left one.
    pub(super) fn find(root: &HostRoot) -> Result<Option<(Self, JournalStage)>> {
        root.remove(TEMP_PATH).with_context(|| format!("cannot remove {TEMP_PATH}"))?;
        for (path, stage) in
            [(JOURNAL_PATH, JournalStage::Begun), (COMMITTED_PATH, JournalStage::Committed)]
        {
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
