//! The state of the host before it was managed, as far as no original is kept: directories that were
//! created, links of units, permissions, the password of `core`. With it, a config that is removed
//! leaves no trace.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::ApplyError;
use super::fs_node::{FileContent, FileMeta, FsNode};
use super::overlay::TreeOverlay;
use crate::api::names::path::DAEMON_DIR;
use crate::versioned::{self, VersionedFileError};

/// The file.
pub const BASELINE_PATH: &str = "/etc/machine-config-daemon/machinist-before.json";
/// The version of the file that this version writes.
const VERSION: u32 = 1;

/// The state of the host before it was managed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostBaseline {
    /// Directories that were created. They are removed when they are empty.
    #[serde(alias = "folders", skip_serializing_if = "BTreeSet::is_empty")] // words: keep
    pub directories: BTreeSet<String>,
    /// For each unit, the links that were changed, and where they pointed if they existed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub units: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// Permissions and owners that were changed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metas: BTreeMap<String, FileMeta>,
    /// The password of `core`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<ShadowPassword>,
    /// The users of the config, on hosts that are not MCO's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub accounts: BTreeMap<String, AccountBaseline>,
}

/// What a config has changed about a user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccountBaseline {
    /// Whether the user was created.
    #[serde(rename = "created")]
    pub is_created: bool,
    /// Whether the group of the same name was created.
    #[serde(rename = "createdGroup")]
    pub has_created_group: bool,
    /// The groups that the user was added to.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<String>,
    /// The password before that of the config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<ShadowPassword>,
    /// The file with the keys of the config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys_file: Option<String>,
}

/// A password as `/etc/shadow` has it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowPassword {
    /// The hash.
    pub hash: String,
    /// The day of the last change, as it is written there.
    pub changed: String,
}

impl fmt::Debug for ShadowPassword {
    /// Hides the hash.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<password>")
    }
}

/// Reads the record of the machine; an empty one if there is none.
pub(super) fn read(view: &mut TreeOverlay) -> Result<HostBaseline, ApplyError> {
    let path = view.resolve(BASELINE_PATH)?;
    let Some(bytes) = view.bytes(&path)? else { return Ok(HostBaseline::default()) };
    HostBaseline::from_json(&bytes).map_err(|error| match error {
        VersionedFileError::Invalid { path, line, column } => ApplyError::InvalidBaseline {
            path,
            problem: format!("not readable at line {line}, column {column}"),
        },
        error @ VersionedFileError::TooNew { .. } => ApplyError::NewerBaseline(error),
    })
}

impl HostBaseline {
    /// Reads the file.
    pub fn from_json(bytes: &[u8]) -> Result<Self, VersionedFileError> {
        versioned::from_json(BASELINE_PATH, VERSION, bytes)
    }

    /// Records permissions before they are changed for the first time.
    pub(super) fn keep_meta(&mut self, path: &str, meta: FileMeta) {
        self.metas.entry(path.to_owned()).or_insert(meta);
    }

    /// Restores permissions.
    pub(super) fn restore_metas(&mut self, view: &mut TreeOverlay) -> Result<(), ApplyError> {
        for (path, meta) in std::mem::take(&mut self.metas) {
            match view.node(&path)? {
                FsNode::File { content, .. } => view.set(&path, FsNode::File { meta, content }),
                FsNode::Directory { .. } => view.set(&path, FsNode::Directory { meta }),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the created directories that are empty now, and writes the record unless it is empty.
    pub(super) fn write(mut self, view: &mut TreeOverlay) -> Result<(), ApplyError> {
        let path = view.resolve(BASELINE_PATH)?;
        self.directories.extend(view.take_created_directories());
        // It stays as long as the machine is managed.
        self.directories.remove(DAEMON_DIR);
        for directory in self.directories.clone().iter().rev() {
            let is_directory = matches!(view.node(directory)?, FsNode::Directory { .. });
            if is_directory && view.entries(directory)?.is_empty() {
                view.set(directory, FsNode::Absent);
            }
            if !matches!(view.node(directory)?, FsNode::Directory { .. }) {
                self.directories.remove(directory);
            }
        }
        if self == Self::default() {
            if view.exists(&path)? {
                view.set(&path, FsNode::Absent);
            }
            return Ok(());
        }
        let mut bytes = versioned::to_json(VERSION, &self).unwrap_or_default();
        bytes.push(b'\n');
        // Only root may read the password hash.
        let meta = FileMeta { mode: super::PRIVATE_FILE_MODE, owner: view.defaults.owner };
        view.set_with_parents(&path, FsNode::File { meta, content: FileContent::new(bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_first_release_is_read() {
        let old = r#"{"folders":["/etc/x"],"metas":{"/etc/y":{"mode":420,"uid":0,"gid":0}}}"#; // words: keep
        let read: HostBaseline =
            versioned::from_json(BASELINE_PATH, VERSION, old.as_bytes()).unwrap();
        assert!(read.directories.contains("/etc/x") && read.metas.contains_key("/etc/y"));
        let written = String::from_utf8(versioned::to_json(VERSION, &read).unwrap()).unwrap();
        assert!(written.starts_with(r#"{"version":1,"directories":["/etc/x"],"#), "{written}");
    }
}
