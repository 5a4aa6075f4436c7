//! Undoes a change. It does not matter how far the change got: each step is inspected, and undone if the
//! path is not as it was. So undoing can be interrupted and started again.

use std::io;

use anyhow::{Context as _, Result};
use machinist_core::apply::{DiskStep, FileMeta, FsNode};

use super::super::fault_injection;
use super::super::journal::Journal;
use super::super::root::{HostRoot, set_meta};
use super::{change_directory_meta, fsync_directories};

/// Undoes every step, the last first. Continues after an error, and returns the first one.
pub(in super::super) fn undo(root: &HostRoot, journal: &Journal) -> Result<()> {
    let mut first = Ok(());
    for (index, step) in journal.plan.steps.iter().enumerate().rev() {
        let done = undo_step(root, journal, index)
            .with_context(|| format!("cannot put {:?} back as it was", step.path));
        fault_injection::point();
        first = first.and(done);
    }
    first.and(fsync_directories(root, &journal.plan.steps))
}

fn undo_step(root: &HostRoot, journal: &Journal, index: usize) -> io::Result<()> {
    let DiskStep { path, from, to } = &journal.plan.steps[index];
    match (from, to) {
        (FsNode::Directory { meta }, FsNode::Directory { .. }) => match root.look(path)? {
            FsNode::Directory { .. } => change_directory_meta(root, path, *meta),
            _ => Ok(()),
        },
        (FsNode::Absent, FsNode::Directory { .. }) => match root.remove_directory(path) {
            // Someone has put something into it.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            done => done,
        },
        // Directories are removed only when the change is complete.
        (FsNode::Directory { .. }, _) => Ok(()),
        _ => {
            let (old, new) = (journal.old_path(root, index), journal.new_path(root, index));
            if from.is_absent() {
                // Only what this change put there.
                if root.look(path)? == *to {
                    root.remove(path)?;
                }
            } else if root.exists(&old)? {
                root.rename(&old, path)?;
                // rename(2) does nothing if both names are the same file.
                root.remove(&old)?;
            } else if let FsNode::File { meta, .. } = from
                && from.differs_in_meta_only(to)
                && root.look(path)? == *to
            {
                undo_in_place(root, path, *meta)?;
            }
            root.remove(&new)
        }
    }
}

/// Undoes a change of permissions by an older version, which changed them in place. A file with a second name
/// stays as it is: the other name may be anyone's.
fn undo_in_place(root: &HostRoot, path: &str, meta: FileMeta) -> io::Result<()> {
    let file = root.read_only(path)?;
    if rustix::fs::fstat(&file)?.st_nlink > 1 {
        return Ok(());
    }
    set_meta(&file, meta)?;
    file.sync_all()
}
