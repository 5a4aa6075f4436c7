//! The config that did the machine no good, on its disk: it outlives restarts.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use machinist_core::api::names::path::DAEMON_FOLDER;
use machinist_core::apply::Tree as _;
use machinist_core::health::{MARKER, Marker};

use super::super::root::Root;

/// Being written, means nothing.
const NEW: &str = "/etc/machine-config-daemon/machinist-failed.json.new";

/// Keeps it. On the disk when this returns.
pub(crate) fn remember(root: &Root, marker: &Marker) -> Result<()> {
    let write = || {
        if !root.exists(DAEMON_FOLDER)? {
            root.make_folder(DAEMON_FOLDER)?;
        }
        let mut file = root.create(NEW)?;
        file.write_all(&serde_json::to_vec(marker)?)?;
        file.sync_all()?;
        root.rename(NEW, MARKER)?;
        root.sync_folder(DAEMON_FOLDER)
    };
    write().with_context(|| format!("cannot write {MARKER}"))
}

/// What is kept, if anything is. One that cannot be read is as if there were none: then the config
/// is tried again, and fails again.
pub(crate) fn recall(root: &Root) -> Result<Option<Marker>> {
    if !root.exists(MARKER).with_context(|| format!("cannot read {MARKER}"))? {
        return Ok(None);
    }
    let bytes = root.bytes(MARKER)?;
    Ok(serde_json::from_slice(&bytes)
        .inspect_err(|error| tracing::warn!("{MARKER} cannot be read and is passed over: {error}"))
        .ok())
}

/// Forgets it.
pub(crate) fn forget(root: &Root) -> Result<()> {
    if root.exists(MARKER)? {
        root.remove(MARKER).with_context(|| format!("cannot remove {MARKER}"))?;
        root.sync_folder(DAEMON_FOLDER)?;
    }
    Ok(())
}
