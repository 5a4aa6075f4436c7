//! The daemon's own files: the current config, the pending change, the annotations of the first boot,
//! and the force file.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use anyhow::{Context as _, Result};
use machinist_core::api::MachineConfig;
use machinist_core::api::names::path::{
    CURRENT_CONFIG, CURRENT_IMAGE, DAEMON_DIR, ENCAPSULATED, ENCAPSULATED_BACKUP, FORCE,
    IGNITION_PRESET, NO_ORIGINALS, NODE_ANNOTATIONS, NODE_ANNOTATIONS_BACKUP, ORIGINALS,
};
use machinist_core::apply::{self, BASELINE_PATH, FsNode, FsTree as _, LONG_ORIGINALS};
use machinist_core::daemon::{PENDING_PATH, PendingChange};
use machinist_core::health::FAILED_CONFIG_PATH;
use machinist_core::os::{layered_image, with_layered_image};
use machinist_core::versioned::VersionedFileError;

use super::root::{HostRoot, MAX_FILE_SIZE, split};
use super::unreadable_files;

/// The daemon's own files beside the originals.
pub(super) const OWN_FILES: [&str; 7] = [
    FAILED_CONFIG_PATH,
    PENDING_PATH,
    BASELINE_PATH,
    CURRENT_CONFIG,
    CURRENT_IMAGE,
    NODE_ANNOTATIONS,
    NODE_ANNOTATIONS_BACKUP,
];

/// Removes the daemon's own files, and its directories as far as they are empty: originals and quarantined files stay.
pub(super) fn remove_own_files(root: &HostRoot) -> Result<()> {
    for path in OWN_FILES {
        root.remove(path).with_context(|| format!("cannot remove {path}"))?;
    }
    remove_empty_directories(root);
    Ok(())
}

/// Removes the daemon's own directories as far as they are empty.
pub(super) fn remove_empty_directories(root: &HostRoot) {
    for directory in [ORIGINALS, NO_ORIGINALS, LONG_ORIGINALS, DAEMON_DIR] {
        remove_empty(&root.path().join(directory.trim_start_matches('/')));
    }
}

/// Removes a directory and those in it, as far as they are empty.
fn remove_empty(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    // It is not empty, or not there.
    let _ = fs::remove_dir(directory);
}

/// The current boot of the machine. In a pod, the boot ID beneath the host's root counts if it is there.
pub(super) fn boot_id(root: &Path) -> Result<String> {
    let path = "proc/sys/kernel/random/boot_id";
    let of = |root: &Path| fs::read_to_string(root.join(path));
    let text = of(root).or_else(|_| of(Path::new("/")));
    Ok(text.with_context(|| format!("cannot read /{path}"))?.trim().to_owned())
}

/// What the daemon's files say about the machine.
#[derive(Debug, Clone, Default)]
pub(super) struct DiskState {
    /// The current config.
    pub(super) current: Option<MachineConfig>,
    /// Why the current config cannot be read, although there is a file.
    pub(super) damage: Option<String>,
    /// The change that is not complete.
    pub(super) pending: Option<PendingChange>,
    /// Why the record of that change cannot be read, although there is one.
    pub(super) lost_pending: Option<String>,
    /// The annotations that a new machine writes to its Node.
    pub(super) first_boot_annotations: Option<BTreeMap<String, String>>,
    /// Whether the force file asks to rewrite everything.
    pub(super) force_rewrite: bool,
}

impl DiskState {
    /// Reads all of them.
    pub(super) fn read(root: &HostRoot) -> Result<Self> {
        let (current, damage) = match read_current_config(root)? {
            CurrentConfigFile::Absent => (None, None),
            CurrentConfigFile::Config(config) => (Some(*config), None),
            CurrentConfigFile::Damaged(damage) => (None, Some(damage)),
        };
        let (pending, lost_pending) = match read_pending(root)? {
            Ok(pending) => (pending, None),
            Err(damage) => (None, Some(damage)),
        };
        let first_boot_annotations = match first_boot(root) {
            // Only a machine without a config needs them.
            Err(error) if current.is_some() => {
                tracing::debug!(error = %format_args!("{error:#}"), "ignoring this file");
                None
            }
            read => read?,
        };
        Ok(Self {
            current,
            damage,
            pending,
            lost_pending,
            first_boot_annotations,
            force_rewrite: exists(root, FORCE)?,
        })
    }

    /// The name of the current config.
    pub(super) fn current_name(&self) -> Option<&str> {
        self.current.as_ref().map(|config| config.metadata.name.as_deref().unwrap_or_default())
    }

    /// The current layered image; empty if there is none.
    pub(super) fn layered_image(&self) -> Option<&str> {
        self.current.as_ref().map(|config| layered_image(config).unwrap_or_default())
    }
}

/// One of the daemon's files.
enum OwnFile {
    Absent,
    Bytes(Vec<u8>),
    /// It cannot be what it should: why.
    Damaged(String),
}

fn read_own(root: &HostRoot, path: &str) -> Result<OwnFile> {
    Ok(match root.look(path).with_context(|| format!("cannot read {path}"))? {
        FsNode::Absent => OwnFile::Absent,
        FsNode::File { content, .. } if content.size > MAX_FILE_SIZE => {
            OwnFile::Damaged(format!("{path} is larger than such a file can be"))
        }
        FsNode::File { .. } => OwnFile::Bytes(root.read(path)?),
        other => OwnFile::Damaged(format!("{path} is {}, not a file", other.kind())),
    })
}

/// What the file with the current config is.
pub(super) enum CurrentConfigFile {
    /// There is none.
    Absent,
    /// The current config.
    Config(Box<MachineConfig>),
    /// There is a file, but it cannot be read: why.
    Damaged(String),
}

/// Reads the file with the current config.
pub(super) fn read_current_config(root: &HostRoot) -> Result<CurrentConfigFile> {
    let bytes = match read_own(root, CURRENT_CONFIG)? {
        OwnFile::Absent => return Ok(CurrentConfigFile::Absent),
        OwnFile::Damaged(damage) => return Ok(CurrentConfigFile::Damaged(damage)),
        OwnFile::Bytes(bytes) => bytes,
    };
    let config = match apply::parse_current_config(&bytes) {
        Ok(config) => config,
        // Not the parser's message: it may quote a secret from the config.
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            return Ok(CurrentConfigFile::Damaged(match bytes.is_empty() {
                true => format!("{CURRENT_CONFIG} is empty"),
                false => format!(
                    "{CURRENT_CONFIG} is not a MachineConfig (line {line}, column {column})"
                ),
            }));
        }
    };
    Ok(match current_image(root)? {
        Ok(image) => {
            CurrentConfigFile::Config(Box::new(with_layered_image(config, image.as_deref())))
        }
        Err(damage) => CurrentConfigFile::Damaged(damage),
    })
}

/// The current config of a root, if there is one, where nobody can write a damaged file again.
pub(super) fn current_config(root: &HostRoot) -> Result<Option<MachineConfig>> {
    match read_current_config(root)? {
        CurrentConfigFile::Absent => Ok(None),
        CurrentConfigFile::Config(config) => Ok(Some(*config)),
        CurrentConfigFile::Damaged(damage) => anyhow::bail!(
            "{damage}: restore the current config of the machine, start its daemon, which writes the file again, or remove the file to start over"
        ),
    }
}

/// Writes the current config, and its layered image.
pub(super) fn write_current_config(root: &HostRoot, config: &MachineConfig) -> Result<()> {
    let image = layered_image(config).unwrap_or_default();
    let bytes = apply::current_config_bytes(config);
    for (path, bytes) in [(CURRENT_IMAGE, image.as_bytes()), (CURRENT_CONFIG, &bytes[..])] {
        write_private(root, path, bytes).with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}

/// The current layered image of a root, if there is one, or why it cannot be read.
fn current_image(root: &HostRoot) -> Result<Result<Option<String>, String>> {
    let bytes = match read_own(root, CURRENT_IMAGE)? {
        OwnFile::Absent => return Ok(Ok(None)),
        OwnFile::Damaged(damage) => return Ok(Err(damage)),
        OwnFile::Bytes(bytes) => bytes,
    };
    Ok(match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(_) => Err(format!("{CURRENT_IMAGE} is not an image reference")),
    })
}

fn exists(root: &HostRoot, path: &str) -> Result<bool> {
    root.exists(path).with_context(|| format!("cannot read {path}"))
}

/// The change that is not complete; none if its record is damaged.
pub(super) fn pending(root: &HostRoot) -> Result<Option<PendingChange>> {
    Ok(read_pending(root)?.unwrap_or_default())
}

/// The change that is not complete, or why its record cannot be read. That of a newer Machinist is an error.
fn read_pending(root: &HostRoot) -> Result<Result<Option<PendingChange>, String>> {
    let bytes = match read_own(root, PENDING_PATH)? {
        OwnFile::Absent => return Ok(Ok(None)),
        OwnFile::Damaged(damage) => return Ok(Err(damage)),
        OwnFile::Bytes(bytes) => bytes,
    };
    match PendingChange::from_json(&bytes) {
        Ok(pending) => Ok(Ok(Some(pending))),
        Err(error @ VersionedFileError::Invalid { .. }) => Ok(Err(error.to_string())),
        Err(error) => Err(error.into()),
    }
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

/// Records the pending change, or removes the record.
pub(super) fn set_pending(root: &HostRoot, pending: Option<&PendingChange>) -> Result<()> {
    let Some(pending) = pending else {
        if exists(root, PENDING_PATH)? {
            match root.remove(PENDING_PATH) {
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                    unreadable_files::move_away(root, PENDING_PATH).map(drop)
                }
                removed => removed.map_err(anyhow::Error::new),
            }
            .and_then(|()| Ok(root.fsync_directory(DAEMON_DIR)?))
            .with_context(|| format!("cannot remove {PENDING_PATH}"))?;
        }
        return Ok(());
    };
    if !exists(root, DAEMON_DIR)? {
        let make = || {
            root.make_directory(DAEMON_DIR)?;
            root.fsync_directory(split(DAEMON_DIR).0)
        };
        make().with_context(|| format!("cannot create {DAEMON_DIR}"))?;
    }
    let bytes = pending.to_json()?;
    write_private(root, PENDING_PATH, &bytes)
        .with_context(|| format!("cannot write {PENDING_PATH}"))
}

/// Writes a file that only root may read, atomically.
pub(super) fn write_private(root: &HostRoot, path: &str, bytes: &[u8]) -> io::Result<()> {
    match root.write_file(path, bytes, apply::PRIVATE_FILE_MODE) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            unreadable_files::move_away(root, path).map_err(io::Error::other)?;
            root.write_file(path, bytes, apply::PRIVATE_FILE_MODE)
        }
        written => written,
    }
}

/// Removes the force file.
pub(super) fn clear_force(root: &HostRoot) -> Result<()> {
    root.remove(FORCE).with_context(|| format!("cannot remove {FORCE}"))
}

/// Moves the files of the first boot away. Returns warnings.
pub(super) fn end_first_boot(root: &HostRoot) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    if exists(root, NODE_ANNOTATIONS)? {
        root.rename(NODE_ANNOTATIONS, NODE_ANNOTATIONS_BACKUP)
            .and_then(|()| root.fsync_directory(DAEMON_DIR))
            .with_context(|| format!("cannot rename {NODE_ANNOTATIONS}"))?;
    }
    if exists(root, ENCAPSULATED)? {
        notes.push(
            "Failed to complete machine-config-daemon-firstboot before joining cluster!".to_owned(),
        );
        root.rename(ENCAPSULATED, ENCAPSULATED_BACKUP)
            .and_then(|()| root.fsync_directory(split(ENCAPSULATED).0))
            .with_context(|| format!("cannot rename {ENCAPSULATED}"))?;
    }
    root.remove(IGNITION_PRESET).with_context(|| format!("cannot remove {IGNITION_PRESET}"))?;
    Ok(notes)
}
