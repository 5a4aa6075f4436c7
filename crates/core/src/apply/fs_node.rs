//! What can be at a path: the states that a plan moves between.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::hex::hex;

/// User and group IDs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOwner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// Permissions and owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMeta {
    /// The permission bits, without the file type.
    pub mode: u32,
    /// The owner.
    #[serde(flatten)]
    pub owner: FileOwner,
}

/// Where the bytes of a file come from.
#[derive(Clone, PartialEq, Eq)]
pub enum ContentSource {
    /// These bytes. Shared: a plan is cloned, and they can be large.
    Bytes(Arc<Vec<u8>>),
    /// From the file at a path, with its times and extended attributes.
    Path(String),
    /// Unknown: read back from a journal.
    Unknown,
}

/// The contents of a file. Two are equal if size and digest are equal.
#[derive(Clone, Serialize, Deserialize)]
pub struct FileContent {
    /// The size in bytes.
    pub size: u64,
    /// The SHA-256, in hexadecimal.
    pub sha256: String,
    /// Where the bytes come from. Never serialised: they may be secret.
    #[serde(skip, default = "unknown")]
    pub source: ContentSource,
}

fn unknown() -> ContentSource {
    ContentSource::Unknown
}

impl FileContent {
    /// The contents with these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            size: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            sha256: hex(&Sha256::digest(&bytes)),
            source: ContentSource::Bytes(Arc::new(bytes)),
        }
    }

    /// Size and digest alone, for comparisons.
    #[must_use]
    pub fn without_bytes(self) -> Self {
        Self { source: ContentSource::Unknown, ..self }
    }
}

impl PartialEq for FileContent {
    fn eq(&self, other: &Self) -> bool {
        (self.size, &self.sha256) == (other.size, &other.sha256)
    }
}

impl Eq for FileContent {}

impl fmt::Debug for FileContent {
    /// Shows size and digest; the bytes may be secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "<{} bytes, sha256 {}>", self.size, self.sha256)
    }
}

impl fmt::Debug for ContentSource {
    /// Shows the source; the bytes may be secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(formatter, "<{} bytes>", bytes.len()),
            Self::Path(path) => write!(formatter, "<copy of {path}>"),
            Self::Unknown => formatter.write_str("<unknown>"),
        }
    }
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum FsNode {
    /// Nothing.
    Absent,
    /// A file.
    File {
        /// Permissions and owner.
        #[serde(flatten)]
        meta: FileMeta,
        /// Its contents.
        content: FileContent,
    },
    /// A symbolic link.
    Link {
        /// Where it points.
        target: String,
        /// Its owner.
        #[serde(flatten)]
        owner: FileOwner,
    },
    /// A directory.
    #[serde(alias = "folder")] // words: keep
    Directory {
        /// Permissions and owner.
        #[serde(flatten)]
        meta: FileMeta,
    },
    /// A device, a socket or a pipe.
    Special,
}

impl FsNode {
    /// Whether nothing is there.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        *self == Self::Absent
    }

    /// The kind, for error messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Absent => "nothing",
            Self::File { .. } => "a file",
            Self::Link { .. } => "a link",
            Self::Directory { .. } => "a directory",
            Self::Special => "a device, socket or pipe",
        }
    }

    /// Whether only permissions or owner differ.
    #[must_use]
    pub fn differs_in_meta_only(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { content: a, .. }, Self::File { content: b, .. }) => a == b,
            (Self::Directory { .. }, Self::Directory { .. }) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_read_by_its_old_name() {
        let old = r#"{"kind":"folder","mode":493,"uid":0,"gid":0}"#; // words: keep
        let meta = FileMeta { mode: 0o755, owner: FileOwner { uid: 0, gid: 0 } };
        let directory: FsNode = serde_json::from_str(old).unwrap();
        assert_eq!(directory, FsNode::Directory { meta });
        let new = serde_json::to_string(&directory).unwrap();
        assert_eq!(new, r#"{"kind":"directory","mode":493,"uid":0,"gid":0}"#);
    }
}
