//! Performs the steps of a plan, and undoes them. Called by `transaction`, which keeps the journal.
//!
//! No path changes before all new files are on disk under temporary names and all old files have a second
//! name. Then names are exchanged. Every step can be undone, and undoing can be started again from the
//! beginning at any time.

mod stage;
mod undo;

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use machinist_core::apply::{DiskStep, FileMeta, FsNode};
use rustix::io::Errno;

use super::journal::Journal;
use super::root::{HostRoot, set_meta, split};
use crate::fault_injection;

pub(super) use undo::{clean_up, finish_quarantined, undo};

/// The maximum number of threads that sync files.
const MAX_WORKERS: usize = 32;
/// Few files are not worth a thread.
const FILES_PER_WORKER: usize = 16;

/// Performs a plan whose journal is on disk.
pub(super) fn execute(root: &HostRoot, journal: &Journal) -> Result<()> {
    let steps = || journal.plan.steps.iter().enumerate();
    for (_, step) in steps().filter(|(_, step)| is_make_directory(step)) {
        make_directory(root, step)
            .with_context(|| format!("cannot make the directory {:?}", step.path))?;
        fault_injection::point();
    }
    for (index, step) in steps() {
        stage::prepare(root, journal, index)
            .with_context(|| format!("cannot write {:?}", step.path))?;
        fault_injection::point();
    }
    fsync_files(root, journal)?;
    fsync_directories(root, &journal.plan.steps)?;
    fault_injection::point();
    for (index, step) in steps() {
        swap_in(root, journal, index)
            .with_context(|| format!("cannot put {:?} in place", step.path))?;
        fault_injection::point();
    }
    fsync_directories(root, &journal.plan.steps)
}

/// Removes the second name of a step of a complete change, or the directory that the step removes.
fn clean_up_step(root: &HostRoot, step: &DiskStep, old: &str) -> io::Result<()> {
    match (&step.from, &step.to) {
        (FsNode::File { .. } | FsNode::Link { .. }, _) => root.remove(old),
        (FsNode::Directory { .. }, FsNode::Absent) => match root.remove_directory(&step.path) {
            // Someone has put something into it meanwhile, or uses it.
            Err(error) if is_gone(&error) || undo::is_in_use(&error) => Ok(()),
            done => done,
        },
        _ => Ok(()),
    }
}

/// Whether an error says that nothing can be at a path: a directory above it is missing or something
/// else, or the name is longer than the file system allows.
fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NAMETOOLONG];
    gone.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn is_make_directory(step: &DiskStep) -> bool {
    step.from.is_absent() && matches!(step.to, FsNode::Directory { .. })
}

fn make_directory(root: &HostRoot, step: &DiskStep) -> io::Result<()> {
    let FsNode::Directory { meta } = step.to else { return Ok(()) };
    root.make_directory(&step.path)?;
    set_meta(root.open_directory(&step.path)?, meta)
}

fn swap_in(root: &HostRoot, journal: &Journal, index: usize) -> io::Result<()> {
    let DiskStep { path, from, to } = &journal.plan.steps[index];
    match (from, to) {
        (FsNode::Directory { .. }, FsNode::Directory { meta }) => {
            change_directory_meta(root, path, *meta)
        }
        // Directories are created before and removed after everything else.
        (_, FsNode::Directory { .. } | FsNode::Special) | (FsNode::Directory { .. }, _) => Ok(()),
        (_, FsNode::Absent) => root.remove(path),
        (FsNode::Absent, _) => root.rename_no_replace(&journal.new_path(root, index), path),
        _ => root.rename(&journal.new_path(root, index), path),
    }
}

/// Sets permissions and owner of a directory.
///
/// A file is always replaced instead, even if only its permissions change: it may have a second name that
/// somebody else made, such as a hard link to `/etc/shadow` in a home directory. Directories have one name.
fn change_directory_meta(root: &HostRoot, path: &str, meta: FileMeta) -> io::Result<()> {
    let directory = root.open_directory(path)?;
    set_meta(&directory, meta)?;
    Ok(rustix::fs::fsync(&directory)?)
}

/// Syncs the contents of all new files. Many threads wait at once, so that the file system can write them
/// together.
fn fsync_files(root: &HostRoot, journal: &Journal) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(step) = journal.plan.steps.get(index) else { return Ok(()) };
            stage::fsync(root, journal, index)
                .with_context(|| format!("cannot write {:?}", step.path))?;
        }
    };
    let workers = MAX_WORKERS.min(journal.plan.steps.len() / FILES_PER_WORKER);
    thread::scope(|scope| {
        let others: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            let theirs = other.join().unwrap_or_else(|_| Err(anyhow!("a thread has died")));
            done = done.and(theirs);
        }
        done
    })
}

/// Syncs all directories that changed.
fn fsync_directories(root: &HostRoot, steps: &[DiskStep]) -> Result<()> {
    let directories: BTreeSet<&str> = steps.iter().map(|step| split(&step.path).0).collect();
    for directory in directories {
        match root.fsync_directory(directory) {
            // It was removed, or is not created yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done.with_context(|| format!("cannot write the directory {directory:?}"))?,
        }
    }
    Ok(())
}
