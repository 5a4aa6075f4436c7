//! Undoes a change. It does not matter how far the change got: each step is inspected, and undone if the
//! path is not as it was. So undoing can be interrupted and started again.
//!
//! Steps are undone independently. One that cannot be undone is returned, for the quarantine; the others
//! are undone all the same. A path that is already as it was needs nothing, so a step that the change
//! itself could not make is no obstacle here.

use std::collections::BTreeSet;
use std::io;

use machinist_core::apply::{DiskStep, FileMeta, FsNode, Obstacle, QuarantinedStep, RemainingWork};
use rustix::io::Errno;

use super::super::journal::Journal;
use super::super::preflight;
use super::super::root::{HostRoot, set_meta, split};
use super::{change_directory_meta, clean_up_step, is_gone};
use crate::fault_injection;

/// Undoes every step, the last first. Returns the steps that cannot be undone.
pub(in super::super) fn undo(root: &HostRoot, journal: &Journal) -> Vec<QuarantinedStep> {
    finish_steps(root, journal, RemainingWork::Undo)
}

/// Removes what a complete change left over. Returns the steps that have leftovers still.
pub(in super::super) fn clean_up(root: &HostRoot, journal: &Journal) -> Vec<QuarantinedStep> {
    finish_steps(root, journal, RemainingWork::CleanUp)
}

fn finish_steps(root: &HostRoot, journal: &Journal, work: RemainingWork) -> Vec<QuarantinedStep> {
    let count = journal.plan.steps.len();
    let order: Vec<usize> = match work {
        RemainingWork::Undo => (0..count).rev().collect(),
        // Directories are removed from the bottom, after the files in them: that is the order of a plan.
        RemainingWork::CleanUp => (0..count).collect(),
    };
    let mut left = Vec::new();
    let mut unsynced = BTreeSet::new();
    let set_aside = |index: usize, obstacle| QuarantinedStep {
        step: journal.plan.steps[index].clone(),
        work,
        old_path: journal.old_path(root, index),
        new_path: journal.new_path(root, index),
        obstacle,
    };
    for &index in &order {
        let mut one = set_aside(index, Obstacle::Failed { problem: String::new() });
        if let Err(error) = finish_step(root, &one) {
            one.obstacle = preflight::obstacle_of(root, &one.step, &error);
            left.push(one);
        } else if let Some(inside) = blocked_inside(&one, &left) {
            one.obstacle = inside;
            left.push(one);
        }
        unsynced.insert(split(&journal.plan.steps[index].path).0);
        fault_injection::point();
    }
    for directory in unsynced {
        let Err(error) = fsync_directory(root, directory) else { continue };
        // Nobody knows what is on disk: all steps of this directory are tried again.
        let problem = format!("cannot write the directory {directory:?}: {error}");
        for &index in &order {
            let path = &journal.plan.steps[index].path;
            let is_known = left.iter().any(|one: &QuarantinedStep| one.step.path == *path);
            if split(path).0 == directory && !is_known {
                left.push(set_aside(index, Obstacle::Failed { problem: problem.clone() }));
            }
        }
    }
    // Oldest first, as the quarantine keeps them.
    left.reverse();
    left
}

/// What keeps a directory from being removed because something in it was set aside: it is removed after
/// that.
fn blocked_inside(one: &QuarantinedStep, left: &[QuarantinedStep]) -> Option<Obstacle> {
    let is_removed = match (one.work, &one.step.from, &one.step.to) {
        (RemainingWork::Undo, from, FsNode::Directory { .. }) => from.is_absent(),
        (RemainingWork::CleanUp, FsNode::Directory { .. }, to) => to.is_absent(),
        _ => false,
    };
    let above = format!("{}/", one.step.path);
    let mut inside = left.iter().filter(|other| other.step.path.starts_with(&above));
    inside.next().filter(|_| is_removed).map(|other| other.obstacle.clone())
}

/// Tries again to undo or to clean up a step that was set aside. Returns what keeps it from that.
pub(in super::super) fn finish_quarantined(
    root: &HostRoot,
    one: &QuarantinedStep,
) -> Option<Obstacle> {
    let done = finish_step(root, one).and_then(|()| fsync_directory(root, split(&one.step.path).0));
    done.err().map(|error| preflight::obstacle_of(root, &one.step, &error))
}

fn finish_step(root: &HostRoot, one: &QuarantinedStep) -> io::Result<()> {
    let QuarantinedStep { step, work, old_path, new_path, .. } = one;
    match work {
        RemainingWork::Undo => undo_step(root, step, old_path, new_path),
        RemainingWork::CleanUp => clean_up_step(root, step, old_path),
    }
}

fn fsync_directory(root: &HostRoot, directory: &str) -> io::Result<()> {
    match root.fsync_directory(directory) {
        // It was removed, or was never created.
        Err(error) if is_gone(&error) => Ok(()),
        done => done,
    }
}

fn undo_step(root: &HostRoot, step: &DiskStep, old: &str, new: &str) -> io::Result<()> {
    let DiskStep { path, from, to } = step;
    match (from, to) {
        (FsNode::Directory { meta }, FsNode::Directory { .. }) => match found(root, path)? {
            FsNode::Directory { meta: has } if has != *meta => {
                change_directory_meta(root, path, *meta)
            }
            _ => Ok(()),
        },
        (FsNode::Absent, FsNode::Directory { .. }) => remove_created_directory(root, path),
        // Directories are removed only when the change is complete.
        (FsNode::Directory { .. }, _) => Ok(()),
        _ => {
            let at_path = found(root, path)?;
            if at_path == *from {
                // The change did not get this far, or the step is undone already.
                root.remove(old)?;
            } else if from.is_absent() {
                // Only what this change put there.
                if at_path == *to {
                    root.remove(path)?;
                }
            } else if root.exists(old)? {
                root.rename(old, path)?;
                // rename(2) does nothing if both names are the same file.
                root.remove(old)?;
            } else if let FsNode::File { meta, .. } = from
                && from.differs_in_meta_only(to)
                && at_path == *to
            {
                undo_in_place(root, path, *meta)?;
            }
            root.remove(new)
        }
    }
}

/// What is at a path. Where a name cannot exist, nothing is.
fn found(root: &HostRoot, path: &str) -> io::Result<FsNode> {
    match root.look(path) {
        Err(error) if is_gone(&error) => Ok(FsNode::Absent),
        node => node,
    }
}

/// Removes a directory that the change created, unless someone has put something into it or uses it.
fn remove_created_directory(root: &HostRoot, path: &str) -> io::Result<()> {
    match root.remove_directory(path) {
        Err(error) if is_gone(&error) || is_in_use(&error) => Ok(()),
        done => done,
    }
}

/// Whether a directory stays because others use it.
pub(super) fn is_in_use(error: &io::Error) -> bool {
    let mounted = Some(Errno::BUSY.raw_os_error());
    error.kind() == io::ErrorKind::DirectoryNotEmpty || error.raw_os_error() == mounted
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
