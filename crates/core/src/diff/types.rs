//! The data types of a diff, as JSON output shows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// Added.
    Added,
    /// Removed.
    Removed,
    /// Changed.
    Changed,
}

/// The contents of a file or unit, as far as they may be displayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "shown", rename_all = "camelCase")]
pub enum ShownContents {
    /// No contents.
    Nothing,
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// Binary or large contents.
    Binary {
        /// The size.
        size: usize,
        /// Their SHA-256.
        sha256: String,
    },
    /// A secret.
    Secret,
    /// Remote, or cannot be decoded.
    Undecodable {
        /// The reason.
        reason: String,
    },
}

impl ShownContents {
    /// Text as it is, anything else as its digest.
    #[must_use]
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Self::Text { text },
            Ok(text) => Self::binary(text.as_bytes()),
            Err(error) => Self::binary(error.as_bytes()),
        }
    }

    /// The digest of contents.
    #[must_use]
    pub fn binary(bytes: &[u8]) -> Self {
        let sha256 = crate::hex::hex(&sha2::Sha256::digest(bytes));
        Self::Binary { size: bytes.len(), sha256 }
    }
}

/// A change of contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentChange {
    /// Before.
    pub old: ShownContents,
    /// After.
    pub new: ShownContents,
}

/// A change of one value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueChange {
    /// Before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// After.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

/// A file or unit that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ItemChange {
    /// Its path or name (a drop-in is `unit/drop-in`).
    pub name: String,
    /// The kind of the change.
    pub verb: ChangeKind,
    /// The contents, if they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<ContentChange>,
    /// The other fields that differ.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, ValueChange>,
}

/// The differences between two lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ListChange {
    /// The added entries.
    pub added: Vec<String>,
    /// The removed entries.
    pub removed: Vec<String>,
    /// Whether only the order of the entries differs.
    pub reordered: bool,
}

/// The kinds of changes, with the flags of MCO's daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeFlags {
    /// The OS image.
    pub os_update: bool,
    /// Kernel arguments.
    pub kargs: bool,
    /// FIPS mode.
    pub fips: bool,
    /// Users, keys, passwords.
    pub passwd: bool,
    /// Files.
    pub files: bool,
    /// Units and drop-ins.
    pub units: bool,
    /// The kernel.
    pub kernel_type: bool,
    /// Extensions.
    pub extensions: bool,
}

/// All differences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigDiff {
    /// The kinds of changes.
    pub flags: ChangeFlags,
    /// Files.
    pub files: Vec<ItemChange>,
    /// Units.
    pub units: Vec<ItemChange>,
    /// Drop-ins.
    pub dropins: Vec<ItemChange>,
    /// Users.
    pub users: Vec<ItemChange>,
    /// SSH keys of `core`.
    pub ssh_keys: ListChange,
    /// Kernel arguments.
    pub kernel_arguments: ListChange,
    /// Extensions.
    pub extensions: ListChange,
    /// OS image, kernel type, FIPS and other plain fields.
    pub fields: BTreeMap<String, ValueChange>,
    /// Other sections of the Ignition config that differ. They cannot be changed in place.
    pub other_sections: Vec<&'static str>,
}

impl ConfigDiff {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
            && self.units.is_empty()
            && self.dropins.is_empty()
            && self.users.is_empty()
            && self.ssh_keys == ListChange::default()
            && self.kernel_arguments == ListChange::default()
            && self.extensions == ListChange::default()
            && self.fields.is_empty()
            && self.other_sections.is_empty()
    }
}
