//! Backups: all live entries in one self-checking file.
//!
//! ```text
//! magic "machinist-backup", format u32, revision u64, count u64
//! count × (key, created u64, revision u64, value)      as in codec, sorted by key
//! SHA-256 of all before
//! ```
//!
//! It has no history. A restored store starts far above the revision of the backup, because clients may know revisions
//! that were made after it, and every entry has this revision, so that a client that knows a later state of an object
//! takes the restored one for newer. Watches get [`RevisionError::TooOld`](super::RevisionError::TooOld), so their
//! clients list again.

use std::path::Path;

use sha2::{Digest, Sha256};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::codec;
use super::data_dir::{FORMAT_VERSION, sync_dir};
use super::error::StoreError;
use super::types::StoreEntry;

pub(super) const MAGIC: &[u8; 16] = b"machinist-backup";
pub(super) const CHECKSUM_BYTES: usize = 32;
const CHUNK_BYTES: usize = 256 << 10;

/// What a backup contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// The revision of the backup.
    pub revision: u64,
    /// Number of entries.
    pub entries: usize,
    /// Length in bytes.
    pub bytes: u64,
}

/// Writes a backup to a stream.
pub(super) async fn write(
    to: &mut (impl AsyncWrite + Unpin),
    revision: u64,
    entries: &[StoreEntry],
) -> std::io::Result<BackupInfo> {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    chunk.extend_from_slice(MAGIC);
    chunk.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    chunk.extend_from_slice(&revision.to_le_bytes());
    chunk.extend_from_slice(&(entries.len() as u64).to_le_bytes());
    for entry in entries {
        codec::encode_bytes(&mut chunk, entry.key.as_bytes());
        chunk.extend_from_slice(&entry.created.to_le_bytes());
        chunk.extend_from_slice(&entry.revision.to_le_bytes());
        codec::encode_bytes(&mut chunk, &entry.value);
        if chunk.len() >= CHUNK_BYTES {
            hash.update(&chunk);
            to.write_all(&chunk).await?;
            bytes += chunk.len() as u64;
            chunk.clear();
        }
    }
    hash.update(&chunk);
    chunk.extend_from_slice(&hash.finalize());
    to.write_all(&chunk).await?;
    to.flush().await?;
    bytes += chunk.len() as u64;
    Ok(BackupInfo { revision, entries: entries.len(), bytes })
}

/// Writes a backup to a file, atomically.
pub(super) async fn write_file(
    path: &Path,
    revision: u64,
    entries: &[StoreEntry],
) -> Result<BackupInfo, StoreError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let result = write_partial(partial, revision, entries).await;
    let finish = match result {
        Ok(backup) => tokio::fs::rename(partial, path).await.map(|()| backup),
        Err(error) => Err(error),
    };
    if finish.is_err() {
        let _ = tokio::fs::remove_file(partial).await; // the first error is the one to report
    }
    let backup = finish.map_err(StoreError::io("write", path))?;
    match path.parent() {
        Some(parent) if parent != Path::new("") => sync_dir(parent)?,
        _ => sync_dir(Path::new("."))?,
    }
    tracing::info!(path = %path.display(), revision, entries = backup.entries, "backup written");
    Ok(backup)
}

async fn write_partial(
    path: &Path,
    revision: u64,
    entries: &[StoreEntry],
) -> std::io::Result<BackupInfo> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).await?;
    let backup = write(&mut file, revision, entries).await?;
    file.sync_all().await?;
    Ok(backup)
}
