//! Verifies a data directory offline, without changing its data.

use std::path::Path;

use redb::backends::InMemoryBackend;
use redb::{Builder, StorageBackend as _};

use super::data_dir::{DATA_FILE, DataDir};
use super::data_file::FileControl;
use super::disk;
use super::error::StoreError;
use super::types::{StoreEntry, StoreOptions};

/// The contents of a data directory whose checksums are right.
#[derive(Debug)]
pub struct VerifiedStore {
    /// The revision of the newest transaction.
    pub revision: u64,
    /// The live entries, sorted by key.
    pub entries: Vec<StoreEntry>,
    /// Number of events in the history.
    pub events: usize,
}

/// Reads a data directory as a start does: every page has the right checksum, history and entries
/// agree, and the revision is not older than recorded. It works on a copy in memory, because opening
/// a data file repairs it.
pub(super) fn verify(dir: &Path) -> Result<VerifiedStore, StoreError> {
    // Locking creates what is missing; a check must not.
    std::fs::read_dir(dir).map_err(StoreError::io("read", dir))?;
    let dir = DataDir::lock(dir, FileControl::default())?;
    let path = dir.file(DATA_FILE);
    if !dir.has_data()? {
        return Err(StoreError::corrupt(&path, "it is missing"));
    }
    let bytes = std::fs::read(&path).map_err(StoreError::io("read", &path))?;
    if bytes.is_empty() {
        return Err(StoreError::corrupt(&path, "it is empty"));
    }
    let copy = InMemoryBackend::new();
    copy.set_len(bytes.len() as u64)
        .and_then(|()| copy.write(0, &bytes))
        .map_err(StoreError::io("read", &path))?;
    drop(bytes);
    let database = Builder::new().create_with_backend(copy).map_err(disk::open_error(&path))?;
    let options =
        StoreOptions { history: usize::MAX, history_bytes: usize::MAX, ..StoreOptions::default() };
    let state = disk::load(&path, &database, options)?;
    dir.check_revision(state.revision)?;
    Ok(VerifiedStore {
        revision: state.revision,
        events: state.history.events_after(0).count(),
        entries: state.entries.into_values().collect(),
    })
}
