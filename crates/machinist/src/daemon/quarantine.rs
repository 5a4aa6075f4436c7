//! The quarantine on disk: steps that could not be undone, tried again until they can. Called by
//! `transaction` before each change. `core::apply` decides what the quarantine means for a plan.
//!
//! Nothing in here may keep the daemon from working: a quarantine that cannot be rewritten is only stale,
//! and undoing a step twice does no harm.

use anyhow::{Context as _, Result};
use machinist_core::apply::{
    FsTree as _, PRIVATE_FILE_MODE, QUARANTINE_PATH, Quarantine, QuarantinedStep,
};
use machinist_core::versioned::VersionedFileError;

use super::apply;
use super::root::{HostRoot, split};

/// Reads the quarantine; an empty one if there is none.
pub(super) fn read(root: &HostRoot) -> Result<Quarantine> {
    let exists = root.exists(QUARANTINE_PATH);
    if !exists.with_context(|| format!("cannot read {QUARANTINE_PATH}"))? {
        return Ok(Quarantine::default());
    }
    match Quarantine::from_json(&root.read(QUARANTINE_PATH)?) {
        Ok(quarantine) => Ok(quarantine),
        Err(error @ VersionedFileError::Invalid { .. }) => {
            // The paths in it are drift from now on, which is reported and healed.
            tracing::error!(%error, "ignoring the damaged quarantine");
            Ok(Quarantine::default())
        }
        Err(error) => Err(error.into()),
    }
}

/// Sets steps aside. They are on disk when this returns, so that the journal can be removed.
pub(super) fn set_aside(root: &HostRoot, steps: Vec<QuarantinedStep>) -> Result<()> {
    if steps.is_empty() {
        return Ok(());
    }
    let mut quarantine = read(root)?;
    for step in steps {
        let reason = step.obstructed().to_string();
        tracing::error!(path = step.step.path, reason, "set a step aside that cannot be undone");
        quarantine.add(step);
    }
    write(root, &quarantine)
}

/// Tries again to undo every step, the newest first. What still cannot be undone stays.
pub(super) fn retry(root: &HostRoot) -> Result<()> {
    let before = read(root)?;
    let mut left = Quarantine::default();
    for one in before.steps.iter().rev() {
        match apply::finish_quarantined(root, one) {
            None => tracing::info!(path = one.step.path, "undid a step that was set aside"),
            Some(obstacle) => left.steps.push(QuarantinedStep { obstacle, ..one.clone() }),
        }
    }
    left.steps.reverse();
    if left != before
        && let Err(error) = write(root, &left)
    {
        tracing::warn!(error = %format_args!("{error:#}"), "cannot update the quarantine");
    }
    Ok(())
}

/// Forgets every step, for a machine that leaves, and removes their leftovers as far as possible.
pub(super) fn discard(root: &HostRoot) -> Result<()> {
    for one in read(root)?.steps {
        for path in [&one.old_path, &one.new_path] {
            if let Err(error) = root.remove(path) {
                tracing::warn!(%error, path, "cannot remove a leftover");
            }
        }
    }
    write(root, &Quarantine::default())
}

fn write(root: &HostRoot, quarantine: &Quarantine) -> Result<()> {
    let write = || {
        if quarantine.steps.is_empty() {
            root.remove(QUARANTINE_PATH)?;
            return root.fsync_directory(split(QUARANTINE_PATH).0);
        }
        root.write_file(QUARANTINE_PATH, &quarantine.to_json()?, PRIVATE_FILE_MODE)
    };
    write().with_context(|| format!("cannot write {QUARANTINE_PATH}"))
}
