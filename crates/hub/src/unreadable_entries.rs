//! The stored entries that cannot be decoded: damaged, or written by a version without a depth limit.
//!
//! Found once, at startup: every later write is checked before it is stored. Lists and watches skip
//! these entries, so that one of them does not take the others with it; a delete removes them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::object;
use crate::store::{Store, StoreEntry};

/// Key prefix of all entries.
const ALL_ENTRIES_PREFIX: &str = "/";

/// Unreadable entries by key, with the revision at which they were found.
#[derive(Debug, Default)]
pub(crate) struct UnreadableEntries {
    revisions: HashMap<Arc<str>, u64>,
}

impl UnreadableEntries {
    /// Decodes every entry of a store, and names those that fail in the log.
    #[must_use]
    pub(crate) fn scan(store: &Store) -> Self {
        let mut revisions = HashMap::new();
        for entry in store.list(ALL_ENTRIES_PREFIX, None, None).entries {
            if let Err(error) = object::decode(&entry.value, entry.revision) {
                let (key, revision) = (&*entry.key, entry.revision);
                tracing::warn!(key, revision, %error, "stored object cannot be read; lists skip it, delete it by its name");
                revisions.insert(Arc::clone(&entry.key), revision);
            }
        }
        Self { revisions }
    }

    /// Whether an entry is one of them. A later value of the same key is not.
    #[must_use]
    pub(crate) fn contains(&self, entry: &StoreEntry) -> bool {
        self.revisions.get(&entry.key).is_some_and(|revision| *revision == entry.revision)
    }

    /// The keys with a prefix that are still unreadable.
    #[must_use]
    pub(crate) fn keys(&self, store: &Store, prefix: &str) -> Vec<Arc<str>> {
        let mut keys: Vec<Arc<str>> = self
            .revisions
            .keys()
            .filter(|key| key.starts_with(prefix))
            .filter(|key| store.get(key).is_some_and(|entry| self.contains(&entry)))
            .cloned()
            .collect();
        keys.sort();
        keys
    }
}
