//! Backups: all live entries in one self-checking file.
//!
//! ```text
//! magic "machinist-backup", format u32, revision u64, count u64
//! count × (key, created u64, revision u64, value)      as in codec, sorted by key
//! SHA-256 of all before
//! ```
//!
//! It has no history. A restored store starts far above the revision of the backup, because clients
//! may know revisions that were made after it. Their watches get
//! [`RevisionError::TooOld`](super::RevisionError::TooOld), so they list again.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::codec::{self, ByteReader};
use super::data_dir::{DataDir, FORMAT_VERSION, sync_dir};
use super::data_file::FileControl;
use super::disk::{self, DataFileContents};
use super::error::StoreError;
use super::types::{StoreEntry, StoreEvent};

const MAGIC: &[u8; 16] = b"machinist-backup";
const CHECKSUM_BYTES: usize = 32;
const CHUNK_BYTES: usize = 256 << 10;

/// How far above the backup's revision a restored store starts.
const REVISION_JUMP: u64 = 1_000_000_000;

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

/// Creates a data directory from a backup.
pub(super) fn restore(from: &Path, dir: &Path) -> Result<(), StoreError> {
    let (revision, entries) = read(from)?;
    let dir = DataDir::lock(dir)?;
    dir.ensure_empty()?;
    let start = revision.saturating_add(REVISION_JUMP);
    let none: [Arc<StoreEvent>; 0] = [];
    let contents = DataFileContents {
        revision: start,
        floor: start,
        entries: entries.iter(),
        history: none.iter(),
    };
    let control = FileControl::default();
    let database = disk::build_data_file(&dir, &control, contents)?;
    control.seal();
    drop(database);
    dir.write_format()?;
    tracing::info!(from = %from.display(), revision = start, entries = entries.len(), "backup restored");
    Ok(())
}

/// Reads a backup and verifies its checksum.
fn read(path: &Path) -> Result<(u64, Vec<StoreEntry>), StoreError> {
    let bad = |what: &str| {
        let (path, what) = (path.to_owned(), what.to_owned());
        StoreError::Corrupt { path, what, remedy: "use another backup" }
    };
    let file = Bytes::from(std::fs::read(path).map_err(StoreError::io("read", path))?);
    if !file.starts_with(MAGIC) {
        return Err(bad("it is not a hub backup"));
    }
    let format =
        ByteReader(&file[MAGIC.len()..]).read_u32().ok_or_else(|| bad("it is truncated"))?;
    if format != FORMAT_VERSION {
        let (path, found) = (path.to_owned(), format.to_string());
        return Err(StoreError::Format { path, found, known: FORMAT_VERSION });
    }
    let end = file.len().checked_sub(CHECKSUM_BYTES).ok_or_else(|| bad("it is truncated"))?;
    if Sha256::digest(&file[..end])[..] != file[end..] {
        return Err(bad("its checksum does not match"));
    }
    parse(&file.slice(MAGIC.len() + 4..end)).ok_or_else(|| bad("its entries are malformed"))
}

fn parse(body: &Bytes) -> Option<(u64, Vec<StoreEntry>)> {
    let mut reader = ByteReader(body);
    let (revision, count) = (reader.read_u64()?, reader.read_u64()?);
    let mut entries: Vec<StoreEntry> = Vec::new();
    for _ in 0..count {
        let key = reader.read_str()?;
        if entries.last().is_some_and(|last| &*last.key >= key) {
            return None;
        }
        let (created, written) = (reader.read_u64()?, reader.read_u64()?);
        if created > written || written > revision {
            return None;
        }
        let value = body.slice_ref(reader.read_bytes()?);
        entries.push(StoreEntry { key: key.into(), value, created, revision: written });
    }
    reader.0.is_empty().then_some((revision, entries))
}
