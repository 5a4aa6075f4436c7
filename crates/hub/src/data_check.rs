//! `machinist hub check`: is the data directory of a hub sound?
//!
//! The store verifies its checksums; this module also decodes every object. Called by the command
//! while the hub is stopped, and for each backup that was written.

use std::io::Read;
use std::path::Path;

use crate::object;
use crate::store::{Store, StoreEntry, StoreError};

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataCheck {
    /// The revision of the newest transaction.
    pub revision: u64,
    /// Number of objects.
    pub objects: usize,
    /// Size of their keys and values.
    pub bytes: usize,
    /// Number of events in the history.
    pub events: usize,
    /// The keys of objects that cannot be decoded.
    pub unreadable: Vec<String>,
}

/// Checks the data directory of a stopped hub.
///
/// # Errors
/// The directory is in use, its data are damaged or of a newer format, or the disk fails.
pub fn check_data(dir: &Path) -> Result<DataCheck, StoreError> {
    let verified = Store::verify(dir)?;
    let bytes = verified.entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum();
    Ok(DataCheck {
        revision: verified.revision,
        objects: verified.entries.len(),
        bytes,
        events: verified.events,
        unreadable: unreadable_keys(&verified.entries),
    })
}

/// Checks a backup as [`check_data`] checks a data directory. Errors name it `from`.
///
/// # Errors
/// The backup is damaged or of a newer format, or cannot be read.
pub fn check_backup(source: impl Read, from: &Path) -> Result<DataCheck, StoreError> {
    let (mut bytes, mut unreadable) = (0, Vec::new());
    let info = Store::check_backup(source, from, |entry| {
        bytes += entry.key.len() + entry.value.len();
        if !is_readable(entry) {
            unreadable.push(entry.key.to_string());
        }
    })?;
    Ok(DataCheck { revision: info.revision, objects: info.entries, bytes, events: 0, unreadable })
}

fn unreadable_keys(entries: &[StoreEntry]) -> Vec<String> {
    let unreadable = entries.iter().filter(|entry| !is_readable(entry));
    unreadable.map(|entry| entry.key.to_string()).collect()
}

fn is_readable(entry: &StoreEntry) -> bool {
    object::decode(&entry.value, entry.revision).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_objects_are_named() {
        let entry = |key: &str, value: &'static str| StoreEntry {
            key: key.into(),
            value: value.into(),
            created: 1,
            revision: 2,
        };
        let entries = [entry("/a", "{\"metadata\":{}}"), entry("/b", "{"), entry("/c", "\u{0}")];
        assert_eq!(unreadable_keys(&entries), ["/b", "/c"]);
    }
}
