//! What was there before, where no original is kept for it: folders that were made, links of
//! units, permissions, the password of `core`. With it, a config that lets go leaves no trace.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::ApplyError;
use super::node::{Content, Meta, Node};
use super::view::View;
use crate::api::names::path::DAEMON_FOLDER;

/// Where the record is.
pub const RECORD: &str = "/etc/machine-config-daemon/machinist-before.json";

/// What was there before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// Folders that were made; they go when they are empty.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub folders: BTreeSet<String>,
    /// For each unit, the links that were changed and where they pointed, if they were there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub units: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// Permissions and owners that were changed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metas: BTreeMap<String, Meta>,
    /// The password of `core`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Password>,
}

/// A password as `/etc/shadow` has it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Password {
    /// Its hash.
    pub hash: String,
    /// The day of its last change, as it is written there.
    pub changed: String,
}

impl fmt::Debug for Password {
    /// Nothing of it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<password>")
    }
}

/// The record of the machine, or an empty one.
pub(super) fn read(view: &mut View) -> Result<Record, ApplyError> {
    let path = view.resolve(RECORD)?;
    let Some(bytes) = view.bytes(&path)? else { return Ok(Record::default()) };
    serde_json::from_slice(&bytes).map_err(|error| ApplyError::Record {
        path: RECORD.to_owned(),
        // The line and column are enough; the record holds a password hash.
        problem: format!("not readable at line {}, column {}", error.line(), error.column()),
    })
}

impl Record {
    /// Remembers permissions before they are first changed.
    pub(super) fn keep_meta(&mut self, path: &str, meta: Meta) {
        self.metas.entry(path.to_owned()).or_insert(meta);
    }

    /// Puts permissions back.
    pub(super) fn give_back(&mut self, view: &mut View) -> Result<(), ApplyError> {
        for (path, meta) in std::mem::take(&mut self.metas) {
            match view.node(&path)? {
                Node::File { content, .. } => view.set(&path, Node::File { meta, content }),
                Node::Folder { .. } => view.set(&path, Node::Folder { meta }),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the folders that were made and are empty now, and writes the record, unless there
    /// is nothing to remember.
    pub(super) fn write(mut self, view: &mut View) -> Result<(), ApplyError> {
        let path = view.resolve(RECORD)?;
        self.folders.extend(view.take_made());
        // It stays as long as the machine is managed at all.
        self.folders.remove(DAEMON_FOLDER);
        for folder in self.folders.clone().iter().rev() {
            let is_folder = matches!(view.node(folder)?, Node::Folder { .. });
            if is_folder && view.names(folder)?.is_empty() {
                view.set(folder, Node::Absent);
            }
            if !matches!(view.node(folder)?, Node::Folder { .. }) {
                self.folders.remove(folder);
            }
        }
        if self == Self::default() {
            if view.exists(&path)? {
                view.set(&path, Node::Absent);
            }
            return Ok(());
        }
        let mut bytes = serde_json::to_vec(&self).unwrap_or_default();
        bytes.push(b'\n');
        // It holds a password hash: for root alone.
        let meta = Meta { mode: 0o600, owner: view.style.owner };
        view.put(&path, Node::File { meta, content: Content::new(bytes) })
    }
}
