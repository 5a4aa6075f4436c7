//! The daemon's own files: what the machine has, what is not complete, what it was given for its
//! first boot, and whether the administrator wants everything written anew.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use machinist_core::api::MachineConfig;
use machinist_core::api::names::path::{
    DAEMON_DIR, ENCAPSULATED, ENCAPSULATED_BACKUP, FORCE, IGNITION_PRESET, NODE_ANNOTATIONS,
    NODE_ANNOTATIONS_BACKUP,
};
use machinist_core::apply::{FileMeta, FileOwner, FsTree as _};
use machinist_core::daemon::{PENDING_PATH, PendingChange};
use machinist_core::os::layered_image;

use super::root::{HostRoot, set_meta, split};
use super::transaction;

/// The present boot of the machine. In a pod it is the machine's own that counts, where it can be seen.
pub(super) fn boot_id(root: &Path) -> Result<String> {
    let path = "proc/sys/kernel/random/boot_id";
    let of = |root: &Path| fs::read_to_string(root.join(path));
    let text = of(root).or_else(|_| of(Path::new("/")));
    Ok(text.with_context(|| format!("cannot read /{path}"))?.trim().to_owned())
}

/// What the disk says about the machine.
#[derive(Debug, Clone, Default)]
pub(super) struct DiskState {
    /// The config that the machine has.
    pub(super) current: Option<MachineConfig>,
    /// The change that is not complete.
    pub(super) pending: Option<PendingChange>,
    /// What a new machine is to say first.
    pub(super) first_boot_annotations: Option<BTreeMap<String, String>>,
    /// Whether everything is to be written anew.
    pub(super) force_rewrite: bool,
}

impl DiskState {
    /// Reads it.
    pub(super) fn read(root: &HostRoot) -> Result<Self> {
        Ok(Self {
            current: transaction::current_config(root)?,
            pending: pending(root)?,
            first_boot_annotations: first_boot(root)?,
            force_rewrite: exists(root, FORCE)?,
        })
    }

    /// The name of the config that the machine has.
    pub(super) fn current_name(&self) -> Option<&str> {
        self.current.as_ref().map(|config| config.metadata.name.as_deref().unwrap_or_default())
    }

    /// The image of the pool's own that the machine has; empty where it has none.
    pub(super) fn layered_image(&self) -> Option<&str> {
        self.current.as_ref().map(|config| layered_image(config).unwrap_or_default())
    }
}

fn exists(root: &HostRoot, path: &str) -> Result<bool> {
    root.exists(path).with_context(|| format!("cannot read {path}"))
}

/// The change that is not complete. A file that cannot be read is worth less than a machine that
/// goes on: it is only about what to do after a change.
pub(super) fn pending(root: &HostRoot) -> Result<Option<PendingChange>> {
    if !exists(root, PENDING_PATH)? {
        return Ok(None);
    }
    let read = serde_json::from_slice(&root.read(PENDING_PATH)?);
    Ok(read.inspect_err(|_| tracing::warn!("{PENDING_PATH} cannot be read and is ignored")).ok())
}

fn first_boot(root: &HostRoot) -> Result<Option<BTreeMap<String, String>>> {
    if !exists(root, NODE_ANNOTATIONS)? {
        return Ok(None);
    }
    let read = serde_json::from_slice(&root.read(NODE_ANNOTATIONS)?);
    read.map(Some).with_context(|| {
        format!(
            "{NODE_ANNOTATIONS}: not a JSON map of annotations: correct it, or remove it if the machine has joined before"
        )
    })
}

/// Writes down what is about to be incomplete; forgets it when there is nothing more to do.
pub(super) fn set_pending(root: &HostRoot, pending: Option<&PendingChange>) -> Result<()> {
    let Some(pending) = pending else {
        root.remove(PENDING_PATH).with_context(|| format!("cannot remove {PENDING_PATH}"))?;
        return Ok(());
    };
    if !exists(root, DAEMON_DIR)? {
        let make = || {
            root.make_directory(DAEMON_DIR)?;
            set_meta(root.open_directory(DAEMON_DIR)?, FileMeta { mode: 0o755, owner: own_ids() })?;
            root.fsync_directory(split(DAEMON_DIR).0)
        };
        make().with_context(|| format!("cannot make {DAEMON_DIR}"))?;
    }
    let bytes = serde_json::to_vec(pending)?;
    write_private(root, PENDING_PATH, &bytes)
        .with_context(|| format!("cannot write {PENDING_PATH}"))
}

fn own_ids() -> FileOwner {
    FileOwner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

/// Writes a file for root alone: all of it or nothing.
pub(super) fn write_private(root: &HostRoot, path: &str, bytes: &[u8]) -> std::io::Result<()> {
    let new = format!("{path}.new");
    let mut file = root.create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    root.rename(&new, path)?;
    root.fsync_directory(split(path).0)
}

/// The administrator's wish has been heard.
pub(super) fn clear_force(root: &HostRoot) -> Result<()> {
    root.remove(FORCE).with_context(|| format!("cannot remove {FORCE}"))
}

/// What only a new machine needs is put aside; says what it found.
pub(super) fn end_first_boot(root: &HostRoot) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    if exists(root, NODE_ANNOTATIONS)? {
        root.rename(NODE_ANNOTATIONS, NODE_ANNOTATIONS_BACKUP)
            .with_context(|| format!("cannot rename {NODE_ANNOTATIONS}"))?;
    }
    if exists(root, ENCAPSULATED)? {
        notes.push(
            "Failed to complete machine-config-daemon-firstboot before joining cluster!".to_owned(),
        );
        root.rename(ENCAPSULATED, ENCAPSULATED_BACKUP)
            .with_context(|| format!("cannot rename {ENCAPSULATED}"))?;
    }
    root.remove(IGNITION_PRESET).with_context(|| format!("cannot remove {IGNITION_PRESET}"))?;
    Ok(notes)
}
