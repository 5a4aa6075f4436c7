//! What was there before, where no original is kept for it: folders that were made, links of
//! units, permissions, the password of `core`. With it, a config that lets go leaves no trace.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::ApplyError;
use super::fs_node::{FileContent, FileMeta, FsNode};
use super::overlay::TreeOverlay;
use crate::api::names::path::DAEMON_DIR;

/// Where the record is.
pub const BASELINE_PATH: &str = "/etc/machine-config-daemon/machinist-before.json";

/// What was there before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostBaseline {
    /// Folders that were made; they go when they are empty.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub folders: BTreeSet<String>,
    /// For each unit, the links that were changed and where they pointed, if they were there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub units: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// Permissions and owners that were changed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metas: BTreeMap<String, FileMeta>,
    /// The password of `core`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<ShadowPassword>,
}

/// A password as `/etc/shadow` has it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowPassword {
    /// Its hash.
    pub hash: String,
    /// The day of its last change, as it is written there.
    pub changed: String,
}

impl fmt::Debug for ShadowPassword {
    /// Nothing of it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<password>")
    }
}

/// The record of the machine, or an empty one.
pub(super) fn read(view: &mut TreeOverlay) -> Result<HostBaseline, ApplyError> {
    let path = view.resolve(BASELINE_PATH)?;
    let Some(bytes) = view.bytes(&path)? else { return Ok(HostBaseline::default()) };
    serde_json::from_slice(&bytes).map_err(|error| ApplyError::InvalidBaseline {
        path: BASELINE_PATH.to_owned(),
        // The line and column are enough; the record holds a password hash.
        problem: format!("not readable at line {}, column {}", error.line(), error.column()),
    })
}

impl HostBaseline {
    /// Remembers permissions before they are first changed.
    pub(super) fn keep_meta(&mut self, path: &str, meta: FileMeta) {
        self.metas.entry(path.to_owned()).or_insert(meta);
    }

    /// Puts permissions back.
    pub(super) fn restore_metas(&mut self, view: &mut TreeOverlay) -> Result<(), ApplyError> {
        for (path, meta) in std::mem::take(&mut self.metas) {
            match view.node(&path)? {
                FsNode::File { content, .. } => view.set(&path, FsNode::File { meta, content }),
                FsNode::Folder { .. } => view.set(&path, FsNode::Folder { meta }),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the folders that were made and are empty now, and writes the record, unless there
    /// is nothing to remember.
    pub(super) fn write(mut self, view: &mut TreeOverlay) -> Result<(), ApplyError> {
        let path = view.resolve(BASELINE_PATH)?;
        self.folders.extend(view.take_created_directories());
        // It stays as long as the machine is managed at all.
        self.folders.remove(DAEMON_DIR);
        for folder in self.folders.clone().iter().rev() {
            let is_folder = matches!(view.node(folder)?, FsNode::Folder { .. });
            if is_folder && view.entries(folder)?.is_empty() {
                view.set(folder, FsNode::Absent);
            }
            if !matches!(view.node(folder)?, FsNode::Folder { .. }) {
                self.folders.remove(folder);
            }
        }
        if self == Self::default() {
            if view.exists(&path)? {
                view.set(&path, FsNode::Absent);
            }
            return Ok(());
        }
        let mut bytes = serde_json::to_vec(&self).unwrap_or_default();
        bytes.push(b'\n');
        // It holds a password hash: for root alone.
        let meta = FileMeta { mode: 0o600, owner: view.style.owner };
        view.set_with_parents(&path, FsNode::File { meta, content: FileContent::new(bytes) })
    }
}
