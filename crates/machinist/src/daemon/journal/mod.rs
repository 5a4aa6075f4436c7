//! The journal: the plan of a change, on disk before the change begins. Called by `transaction`.
//!
//! | file in `/etc` | means |
//! |---|---|
//! | `.machinist-journal.new` | nothing yet: it is being written |
//! | `.machinist-journal` | a change has begun and is not complete: undo it |
//! | `.machinist-journal.done` | a change is complete: remove its leftovers |
//!
//! The journal holds paths, permissions and digests, never contents. The old file of each step is kept
//! in the same directory, under a name that the journal determines.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use machinist_core::apply::{ApplyPlan, FsTree as _};
use machinist_core::versioned::{self, VersionedFileError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::root::HostRoot;
use crate::fault_injection;

/// The version that is written. Version 1 names directories differently, which `FsNode` reads too.
const VERSION: u32 = 2;
const JOURNAL_DIR: &str = "/etc";
pub(super) const TEMP_PATH: &str = "/etc/.machinist-journal.new";
pub(super) const JOURNAL_PATH: &str = "/etc/.machinist-journal";
pub(super) const COMMITTED_PATH: &str = "/etc/.machinist-journal.done";

/// A plan that is being performed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    /// Makes the file names of this change unique.
    token: String,
    /// The plan.
    pub(super) plan: ApplyPlan,
}

/// How far a change got.
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
        Ok(Self { token, plan })
    }

    /// Where the new file of a step is prepared.
    pub(super) fn new_path(&self, root: &HostRoot, step: usize) -> String {
        root.sibling(&self.plan.steps[step].path, &format!(".machinist-{}-{step}.new", self.token))
    }

    /// Where the old file of a step is kept.
    pub(super) fn old_path(&self, root: &HostRoot, step: usize) -> String {
        root.sibling(&self.plan.steps[step].path, &format!(".machinist-{}-{step}.old", self.token))
    }

    /// Writes the journal. From now on the change has begun.
    pub(super) fn begin(&self, root: &HostRoot) -> Result<()> {
        let write = || {
            let mut file = root.create(TEMP_PATH)?;
            file.write_all(&versioned::to_json(VERSION, self)?)?;
            file.sync_all()?;
            fault_injection::point();
            root.rename_no_replace(TEMP_PATH, JOURNAL_PATH)?;
            root.fsync_directory(JOURNAL_DIR)
        };
        write().with_context(|| format!("cannot write the journal {JOURNAL_PATH}"))
    }

    /// Marks the change as complete.
    pub(super) fn commit(root: &HostRoot) -> Result<()> {
        let commit = || {
            root.rename(JOURNAL_PATH, COMMITTED_PATH)?;
            fault_injection::point();
            root.fsync_directory(JOURNAL_DIR).inspect_err(|_| {
                // It is not known whether the rename is on disk: take it back.
                let _ = root.rename(COMMITTED_PATH, JOURNAL_PATH);
            })
        };
        commit().context("cannot mark the change as complete")
    }

    /// Removes the journal, when there is nothing more to undo or to clean up.
    pub(super) fn remove(root: &HostRoot) -> Result<()> {
        let end = || {
            for path in [JOURNAL_PATH, TEMP_PATH, COMMITTED_PATH] {
                root.remove(path)?;
            }
            root.fsync_directory(JOURNAL_DIR)
        };
        end().with_context(|| format!("cannot remove the journal {JOURNAL_PATH}"))
    }

    /// Whether there is a journal. Changes nothing.
    pub(super) fn exists(root: &HostRoot) -> Result<bool> {
        Ok(root.exists(JOURNAL_PATH)? || root.exists(COMMITTED_PATH)?)
    }

    /// Reads the bytes of a journal.
    pub(super) fn from_json(path: &str, bytes: &[u8]) -> Result<Self, VersionedFileError> {
        versioned::from_json(path, VERSION, bytes)
    }

    /// Reads the journal of an interrupted change, if there is one.
    pub(super) fn find(root: &HostRoot) -> Result<Option<(Self, JournalStage)>> {
        root.remove(TEMP_PATH).with_context(|| format!("cannot remove {TEMP_PATH}"))?;
        for (path, stage) in
            [(JOURNAL_PATH, JournalStage::Begun), (COMMITTED_PATH, JournalStage::Committed)]
        {
            if root.exists(path).with_context(|| format!("cannot read {path}"))? {
                let bytes = root.read(path)?;
                let journal = Self::from_json(path, &bytes).context(
                    "this journal cannot be read: run the machinist that wrote it, or inspect the journal and remove it",
                )?;
                return Ok(Some((journal, stage)));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinist_core::apply::FsNode;
    use std::fs;

    fn root() -> (tempfile::TempDir, HostRoot) {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("etc")).expect("a directory");
        let root = HostRoot::open(directory.path()).expect("a root");
        (directory, root)
    }

    #[test]
    fn a_journal_of_version_1_is_read() {
        let (directory, root) = root();
        let old = r#"{"version":1,"token":"t","plan":{"from":"a","to":"b","steps":[
            {"path":"/etc/d","from":{"kind":"absent"},"to":{"kind":"folder","mode":493,"uid":0,"gid":0}}]}}"#; // words: keep
        fs::write(directory.path().join(&JOURNAL_PATH[1..]), old).expect("a file");
        let (journal, stage) = Journal::find(&root).expect("readable").expect("a journal");
        assert_eq!((journal.token.as_str(), stage), ("t", JournalStage::Begun));
        assert!(matches!(journal.plan.steps[0].to, FsNode::Directory { .. }));
        Journal::remove(&root).expect("removed");
        journal.begin(&root).expect("written");
        let written =
            fs::read_to_string(directory.path().join(&JOURNAL_PATH[1..])).expect("a file");
        assert!(written.starts_with(r#"{"version":2,"token":"t","#), "{written}");
        assert_eq!(Journal::find(&root).expect("readable").expect("a journal").0, journal);
    }

    #[test]
    fn a_newer_journal_is_refused() {
        let (directory, root) = root();
        fs::write(directory.path().join(&COMMITTED_PATH[1..]), r#"{"version":3}"#).expect("a file");
        let error = format!("{:#}", Journal::find(&root).expect_err("refused"));
        assert!(error.contains(COMMITTED_PATH) && error.contains("version 3"), "{error}");
    }
}
