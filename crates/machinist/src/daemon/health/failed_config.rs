//! The config that did the machine no good, on its disk: it outlives restarts.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use machinist_core::api::names::path::DAEMON_DIR;
use machinist_core::apply::FsTree as _;
use machinist_core::health::{FAILED_CONFIG_PATH, FailedConfig};

use super::super::root::HostRoot;

/// Being written, means nothing.
const TEMP_PATH: &str = "/etc/machine-config-daemon/machinist-failed.json.new";

/// Keeps it. On the disk when this returns.
pub(crate) fn write(root: &HostRoot, marker: &FailedConfig) -> Result<()> {
    let write = || {
        if !root.exists(DAEMON_DIR)? {
            root.make_directory(DAEMON_DIR)?;
        }
        let mut file = root.create(TEMP_PATH)?;
        file.write_all(&serde_json::to_vec(marker)?)?;
        file.sync_all()?;
        root.rename(TEMP_PATH, FAILED_CONFIG_PATH)?;
        root.fsync_directory(DAEMON_DIR)
    };
    write().with_context(|| format!("cannot write {FAILED_CONFIG_PATH}"))
}

/// What is kept, if anything is. One that cannot be read is as if there were none: then the config
/// is tried again, and fails again.
pub(crate) fn read(root: &HostRoot) -> Result<Option<FailedConfig>> {
    if !root
        .exists(FAILED_CONFIG_PATH)
        .with_context(|| format!("cannot read {FAILED_CONFIG_PATH}"))?
    {
        return Ok(None);
    }
    let bytes = root.read(FAILED_CONFIG_PATH)?;
    Ok(serde_json::from_slice(&bytes)
        .inspect_err(|error| {
            tracing::warn!("{FAILED_CONFIG_PATH} cannot be read and is passed over: {error}")
        })
        .ok())
}

/// Forgets it.
pub(crate) fn remove(root: &HostRoot) -> Result<()> {
    if root.exists(FAILED_CONFIG_PATH)? {
        root.remove(FAILED_CONFIG_PATH)
            .with_context(|| format!("cannot remove {FAILED_CONFIG_PATH}"))?;
        root.fsync_directory(DAEMON_DIR)?;
    }
    Ok(())
}
