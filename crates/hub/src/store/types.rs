//! The inputs and outputs of the store.

use std::sync::Arc;

use bytes::Bytes;

/// How much history a store keeps, and how much space on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Number of events kept for watches and for lists of older revisions.
    pub history: usize,
    /// Maximum size of these events besides the live objects.
    pub history_bytes: usize,
    /// Space kept on the disk for deletes and restarts; 0 for none.
    pub reserve_bytes: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { history: 100_000, history_bytes: 256 << 20, reserve_bytes: 16 << 20 }
    }
}

/// Whether a value needs more space than the entry that it replaces. A mark for deletion does not
/// count.
pub(super) fn is_larger(value: &Bytes, replaced: Option<&StoreEntry>) -> bool {
    const DELETION_MARK_BYTES: usize = 256;
    replaced.is_none_or(|old| value.len() > old.value.len() + DELETION_MARK_BYTES)
}

/// A key and its value. A clone shares both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEntry {
    /// The key.
    pub key: Arc<str>,
    /// The value.
    pub value: Bytes,
    /// The revision that created it.
    pub created: u64,
    /// The revision that wrote this value.
    pub revision: u64,
}

/// A page of a sorted list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePage {
    /// The entries, sorted by key.
    pub entries: Vec<StoreEntry>,
    /// The revision of the list.
    pub revision: u64,
    /// Number of entries after this page.
    pub remaining: usize,
}

/// The condition on a key for a transaction to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// No condition.
    Any,
    /// The key does not exist.
    Absent,
    /// The key exists.
    Present,
    /// The key was last written at this revision.
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

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOp {
    /// Writes a key.
    Put {
        /// The key.
        key: String,
        /// The new value.
        value: Bytes,
        /// The precondition.
        expect: Precondition,
    },
    /// Removes a key. Removing a missing key changes nothing.
    Delete {
        /// The key.
        key: String,
        /// The precondition.
        expect: Precondition,
    },
}

impl StoreOp {
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    pub(super) fn precondition(&self) -> Precondition {
        match self {
            Self::Put { expect, .. } | Self::Delete { expect, .. } => *expect,
        }
    }

    /// Whether it needs more space than the entry that it replaces.
    pub(super) fn grows(&self, found: Option<&StoreEntry>) -> bool {
        match self {
            Self::Put { value, .. } => is_larger(value, found),
            Self::Delete { .. } => false,
        }
    }

    pub(super) fn size(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Delete { key, .. } => key.len(),
        }
    }
}

/// A committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionResult {
    /// Its revision. If it changed nothing, the revision that it was checked at.
    pub revision: u64,
    /// Per operation: the new entry of a put, the removed entry of a delete.
    pub entries: Vec<Option<StoreEntry>>,
}

/// The type of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreEventKind {
    /// The key was written.
    Put,
    /// The key was removed.
    Delete,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEvent {
    /// The revision, shared by all changes of a transaction.
    pub revision: u64,
    /// The type of the change.
    pub kind: StoreEventKind,
    /// The new entry of a put. For a delete the last value, with the revision of the delete.
    pub entry: StoreEntry,
    /// The previous entry, if any.
    pub previous: Option<StoreEntry>,
}

impl StoreEvent {
    /// Memory of the event besides the live objects. The new value is either live or the `previous`
    /// of a later event.
    pub(super) fn history_bytes(&self) -> usize {
        const FIXED_OVERHEAD_BYTES: usize = 200;
        FIXED_OVERHEAD_BYTES
            + self.entry.key.len()
            + self.previous.as_ref().map_or(0, |entry| entry.value.len())
    }
}
