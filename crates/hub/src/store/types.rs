//! What goes into the store and what comes out of it.

use std::sync::Arc;

use bytes::Bytes;

/// How much of the past a store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// How many events are kept for watches and for views of older revisions.
    pub history: usize,
    /// How many bytes these events may hold beside the live objects.
    pub history_bytes: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { history: 100_000, history_bytes: 256 << 20 }
    }
}

/// A key with its value. A clone shares both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEntry {
    /// Its key.
    pub key: Arc<str>,
    /// Its value.
    pub value: Bytes,
    /// The revision that created it.
    pub created: u64,
    /// The revision that wrote this value.
    pub revision: u64,
}

/// A part of a sorted list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePage {
    /// The entries, sorted by key.
    pub entries: Vec<StoreEntry>,
    /// The revision that the list is a view of.
    pub revision: u64,
    /// How many entries follow after the last of this page.
    pub remaining: usize,
}

/// What must be true of a key for a transaction to go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    Any,
    /// It does not exist.
    Absent,
    /// It exists.
    Present,
    /// It exists and was last written at this revision.
    Revision(u64),
}

impl Precondition {
    pub(super) fn is_met(self, found: Option<&StoreEntry>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => found.is_none(),
            Self::Present => found.is_some(),
            Self::Revision(revision) => found.is_some_and(|entry| entry.revision == revision),
        }
    }
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOp {
    /// Writes a key.
    Put {
        /// The key.
        key: String,
        /// Its new value.
        value: Bytes,
        /// What must be true before.
        expect: Precondition,
    },
    /// Removes a key. To remove what is not there changes nothing.
    Delete {
        /// The key.
        key: String,
        /// What must be true before.
        expect: Precondition,
    },
}

impl StoreOp {
    pub(super) fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    pub(super) fn precondition(&self) -> Precondition {
        match self {
            Self::Put { expect, .. } | Self::Delete { expect, .. } => *expect,
        }
    }

    pub(super) fn size(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Delete { key, .. } => key.len(),
        }
    }
}

/// A transaction that went through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionResult {
    /// Its revision. A transaction that changed nothing has the revision it was checked at.
    pub revision: u64,
    /// For each step: the entry after a put; for a delete the entry that it removed.
    pub entries: Vec<Option<StoreEntry>>,
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreEventKind {
    /// It was written.
    Put,
    /// It was removed.
    Delete,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEvent {
    /// The revision of the change; all changes of one transaction share it.
    pub revision: u64,
    /// What happened.
    pub kind: StoreEventKind,
    /// The entry after a put; for a delete the last value, with the revision of the delete.
    pub entry: StoreEntry,
    /// The entry before, if there was one.
    pub previous: Option<StoreEntry>,
}

impl StoreEvent {
    /// What keeping the event costs beside the live objects: the new value is either live, or the
    /// `previous` of a later event.
    pub(super) fn history_bytes(&self) -> usize {
        const FIXED_OVERHEAD_BYTES: usize = 200;
        FIXED_OVERHEAD_BYTES
            + self.entry.key.len()
            + self.previous.as_ref().map_or(0, |entry| entry.value.len())
    }
}
