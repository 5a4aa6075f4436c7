//! Reads backups: as a stream, entry by entry, so that the memory does not depend on their size.
//!
//! A restore verifies what it reads, and activates the new data file only after the end of a valid backup. Callers verify
//! the backup with a first pass, so that a damaged one creates no directory.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::backup::{BackupInfo, CHECKSUM_BYTES, MAGIC};
use super::codec::MAX_VALUE_BYTES;
use super::data_dir::{DataDir, FORMAT_VERSION};
use super::data_file::FileControl;
use super::disk::{self, DataFileContents};
use super::error::StoreError;
use super::types::{StoreEntry, StoreEvent};

/// How far above the backup's revision a restored store starts at least.
const REVISION_JUMP: u64 = 1_000_000_000;
/// How many revisions a store can make in a second, at most.
const REVISIONS_PER_SECOND: u64 = 1_000_000;
/// The longest key. Names and namespaces have at most 253 bytes.
const MAX_KEY_BYTES: usize = 64 << 10;
/// What is allocated before the bytes are there: a damaged length must not cost memory.
const INITIAL_CAPACITY: usize = 64 << 10;

/// Reads the entries of a backup in order. The end is reported only if the checksum matches.
pub(super) struct BackupReader<'a, R> {
    source: R,
    path: &'a Path,
    hash: Sha256,
    bytes: u64,
    pub(super) revision: u64,
    remaining: u64,
    last_key: Option<Arc<str>>,
}

impl<'a, R: Read> BackupReader<'a, R> {
    /// Reads the head of a backup. Errors name `path`.
    pub(super) fn open(source: R, path: &'a Path) -> Result<Self, StoreError> {
        let hash = Sha256::new();
        let mut reader =
            Self { source, path, hash, bytes: 0, revision: 0, remaining: 0, last_key: None };
        if reader.read_array()? != *MAGIC {
            return Err(reader.damaged("it is not a hub backup"));
        }
        let format = u32::from_le_bytes(reader.read_array()?);
        if format != FORMAT_VERSION {
            let (path, found) = (path.to_owned(), format.to_string());
            return Err(StoreError::Format { path, found, known: FORMAT_VERSION });
        }
        reader.revision = reader.read_u64()?;
        reader.remaining = reader.read_u64()?;
        Ok(reader)
    }

    /// The next entry; `None` after the last one, if the checksum matches and nothing follows it.
    pub(super) fn next_entry(&mut self) -> Result<Option<StoreEntry>, StoreError> {
        if self.remaining == 0 {
            return self.finish().map(|()| None);
        }
        let key = self.read_bytes(MAX_KEY_BYTES)?;
        let key: Arc<str> =
            String::from_utf8(key).map_err(|_| self.damaged("its entries are malformed"))?.into();
        let (created, revision) = (self.read_u64()?, self.read_u64()?);
        let value = self.read_bytes(MAX_VALUE_BYTES)?.into();
        let is_sorted = self.last_key.as_ref().is_none_or(|last| **last < *key);
        if !is_sorted || created > revision || revision > self.revision {
            return Err(self.damaged("its entries are malformed"));
        }
        self.remaining -= 1;
        self.last_key = Some(Arc::clone(&key));
        Ok(Some(StoreEntry { key, value, created, revision }))
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        let computed = self.hash.finalize_reset();
        let stored: [u8; CHECKSUM_BYTES] = self.read_array()?;
        if computed[..] != stored {
            return Err(self.damaged("its checksum does not match"));
        }
        // Reads to the end of the source: an encrypted one proves only there that nothing was cut off.
        let mut rest = [0];
        match self.source.read(&mut rest).map_err(|error| read_error(self.path, error))? {
            0 => Ok(()),
            _ => Err(self.damaged("it has bytes after its end")),
        }
    }

    fn damaged(&self, what: &str) -> StoreError {
        damaged(self.path, what)
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).map_err(|error| read_error(self.path, error))?;
        self.hash.update(bytes);
        self.bytes += N as u64;
        Ok(bytes)
    }

    fn read_u64(&mut self) -> Result<u64, StoreError> {
        self.read_array().map(u64::from_le_bytes)
    }

    fn read_bytes(&mut self, limit: usize) -> Result<Vec<u8>, StoreError> {
        let length = u32::from_le_bytes(self.read_array()?) as usize;
        if length > limit {
            return Err(self.damaged("its entries are malformed"));
        }
        let mut bytes = Vec::with_capacity(length.min(INITIAL_CAPACITY));
        let read = self.source.by_ref().take(length as u64).read_to_end(&mut bytes);
        if read.map_err(|error| read_error(self.path, error))? < length {
            return Err(self.damaged("it is truncated"));
        }
        self.hash.update(&bytes);
        self.bytes += length as u64;
        Ok(bytes)
    }
}

fn damaged(path: &Path, what: &str) -> StoreError {
    StoreError::Corrupt {
        path: path.to_owned(),
        what: what.to_owned(),
        remedy: "use another backup",
    }
}

/// A source that decrypts reports what is damaged as invalid data.
fn read_error(path: &Path, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(path, "it is truncated"),
        io::ErrorKind::InvalidData => damaged(path, &error.to_string()),
        _ => StoreError::io("read", path)(error),
    }
}

/// Verifies a backup, and shows each entry to `visit`.
pub(super) fn check(
    source: impl Read,
    path: &Path,
    mut visit: impl FnMut(&StoreEntry),
) -> Result<BackupInfo, StoreError> {
    let mut reader = BackupReader::open(source, path)?;
    let mut entries = 0;
    while let Some(entry) = reader.next_entry()? {
        visit(&entry);
        entries += 1;
    }
    Ok(BackupInfo { revision: reader.revision, entries, bytes: reader.bytes })
}

/// Creates a data directory from a backup file, after verifying it.
pub(super) fn restore_file(from: &Path, dir: &Path) -> Result<(), StoreError> {
    let open = || File::open(from).map(BufReader::new).map_err(StoreError::io("read", from));
    check(open()?, from, |_| ())?;
    restore(open()?, from, dir)
}

/// The first revision of a restored store: above all revisions that clients may know. Those were made after the backup,
/// by the hub that was backed up, or by another store that was restored from the same backup before.
fn restored_revision(backed_up: u64, now: SystemTime) -> u64 {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    backed_up.saturating_add(REVISION_JUMP).max(seconds.saturating_mul(REVISIONS_PER_SECOND))
}

/// Creates a data directory from a backup. It contains a store only if all of the backup was read and verified.
pub(super) fn restore(source: impl Read, from: &Path, dir: &Path) -> Result<(), StoreError> {
    let dir = DataDir::lock(dir, FileControl::default())?;
    dir.ensure_empty()?;
    let mut reader = BackupReader::open(source, from)?;
    let revision = restored_revision(reader.revision, SystemTime::now());
    let none: [Arc<StoreEvent>; 0] = [];
    let contents = DataFileContents {
        revision,
        floor: revision,
        // As if each had been written now: a client that knows a later state takes this one for newer.
        entries: std::iter::from_fn(|| reader.next_entry().transpose())
            .map(|entry| entry.map(|entry| StoreEntry { revision, ..entry })),
        history: none.iter(),
    };
    let control = FileControl::default();
    let database = disk::build_data_file(&dir, &control, contents)
        .inspect_err(|_| drop(dir.discard_new_data()))?; // the first error is the one to report
    control.seal();
    drop(database);
    dir.write_format()?;
    tracing::info!(from = %from.display(), revision, "backup restored");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn no_revision_is_used_twice() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let first = restored_revision(7, at(1_800_000_000));
        let again = restored_revision(7, at(1_800_000_001));
        assert!(again >= first + REVISIONS_PER_SECOND, "the same backup, a second later");
        let nested = restored_revision(first + 5, at(1_800_000_000));
        assert!(nested > first + 5, "a backup of a restored store");
        assert!(restored_revision(first, at(0)) > first, "without a clock");
        assert!(again < 1 << 53, "clients that read it as a float are not confused");
    }
}
