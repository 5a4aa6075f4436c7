//! The record on disk of the config that the machine rolled back from. It outlives reboots.

use anyhow::{Context as _, Result};
use machinist_core::api::names::path::DAEMON_DIR;
use machinist_core::apply::FsTree as _;
use machinist_core::health::{FAILED_CONFIG_PATH, FailedConfig};
use machinist_core::versioned::VersionedFileError;

use super::super::root::{HostRoot, split};
use super::super::state;

/// Writes the record. It is on disk when this returns.
pub(crate) fn write(root: &HostRoot, marker: &FailedConfig) -> Result<()> {
    let write = || {
        if !root.exists(DAEMON_DIR)? {
            root.make_directory(DAEMON_DIR)?;
            root.fsync_directory(split(DAEMON_DIR).0)?;
        }
        state::write_private(root, FAILED_CONFIG_PATH, &marker.to_json()?)
    };
    write().with_context(|| format!("cannot write {FAILED_CONFIG_PATH}"))
}

/// The record, if there is one. A damaged one is ignored: the config is tried again, and fails again.
pub(crate) fn read(root: &HostRoot) -> Result<Option<FailedConfig>> {
    if !root
        .exists(FAILED_CONFIG_PATH)
        .with_context(|| format!("cannot read {FAILED_CONFIG_PATH}"))?
    {
        return Ok(None);
    }
    match FailedConfig::from_json(&root.read(FAILED_CONFIG_PATH)?) {
        Ok(marker) => Ok(Some(marker)),
        Err(error @ VersionedFileError::Invalid { .. }) => {
            tracing::warn!(%error, "ignoring the damaged record of a failed config");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes the record.
pub(crate) fn remove(root: &HostRoot) -> Result<()> {
    if root.exists(FAILED_CONFIG_PATH)? {
        root.remove(FAILED_CONFIG_PATH)
            .with_context(|| format!("cannot remove {FAILED_CONFIG_PATH}"))?;
        root.fsync_directory(DAEMON_DIR)?;
    }
    Ok(())
}
