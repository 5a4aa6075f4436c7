//! The errors of the store. Each text names the file or key and the remedy.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::types::StoreEntry;

/// Why an operation of the store failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Arc<io::Error>,
    },
    /// Another process uses the data directory.
    #[error(
        "the data directory {} is in use by {holder}: stop it, or choose another directory",
        dir.display()
    )]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The process that uses it, if known.
        holder: String,
    },
    /// The data were written by a newer version.
    #[error(
        "{} has format {found}, this version reads up to {known}: use the version that wrote it, \
         or a newer one",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format found.
        found: String,
        /// The newest known format.
        known: u32,
    },
    /// A data or backup file is damaged.
    #[error("{} is damaged ({what}): {remedy}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The target of a restore is not empty.
    #[error("{} is not empty (it has {found}): restore into a fresh directory", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
        /// A file in it.
        found: String,
    },
    /// The data file cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    Database {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Arc<redb::Error>,
    },
    /// The disk rejected a transaction. It is not visible and counts as not committed. Only if the
    /// process ends before the disk recovers may it be visible after the restart.
    #[error(
        "cannot write {}: the change was not made; free space or check the disk, then try again",
        path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The disk is nearly full: only changes that free space are accepted.
    #[error(
        "the disk of {} is full: only deletes are accepted; delete objects, or free space on the disk",
        path.display()
    )]
    DiskFull {
        /// The data file.
        path: PathBuf,
    },
    /// A value is too large.
    #[error("the value of {key} has {size} bytes, more than the {limit} the store takes")]
    TooLarge {
        /// The key.
        key: String,
        /// The size of the value.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The store was closed.
    #[error("the store is closed: open it again")]
    Closed,
}

impl StoreError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source: Arc::new(source) }
    }

    pub(super) fn database<E: Into<redb::Error>>(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |error| match error.into() {
            redb::Error::Corrupted(what) => Self::corrupt(&path, what),
            source => Self::Database { action, path, source: Arc::new(source) },
        }
    }

    /// Whether the disk had no space left.
    pub(super) fn is_disk_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_full(source),
            Self::Database { source, .. } => is_full_database(source),
            Self::Write { source, .. } => {
                source.downcast_ref::<redb::Error>().is_some_and(is_full_database)
                    || source.downcast_ref::<Self>().is_some_and(Self::is_disk_full)
            }
            _ => false,
        }
    }

    pub(super) fn corrupt(path: &Path, what: impl Into<String>) -> Self {
        const REMEDY: &str = "restore a backup into a fresh directory";
        Self::Corrupt { path: path.to_owned(), what: what.into(), remedy: REMEDY }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn is_full_database(error: &redb::Error) -> bool {
    matches!(error, redb::Error::Io(error) if is_full(error))
}

/// A transaction failed. None of its operations was applied.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// A precondition failed.
    #[error("{}", conflict(*op, found.as_ref()))]
    Conflict {
        /// Index of the operation.
        op: usize,
        /// The current entry of the key.
        found: Option<StoreEntry>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn conflict(op: usize, found: Option<&StoreEntry>) -> String {
    match found {
        Some(entry) => format!(
            "step {op}: {} is at revision {}: read it again and retry",
            entry.key, entry.revision
        ),
        None => format!("step {op}: the key does not exist: read it again and retry"),
    }
}

/// Why a revision cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevisionError {
    /// The history no longer contains the revision.
    #[error("revision {requested} is too old, the history starts at {oldest}: list again")]
    Compacted {
        /// The requested revision.
        requested: u64,
        /// The oldest revision that can be served.
        oldest: u64,
    },
    /// The revision is in the future.
    #[error("revision {requested} is not there yet, the newest is {current}: try again later")]
    FutureRevision {
        /// The requested revision.
        requested: u64,
        /// The newest revision.
        current: u64,
    },
    /// The store was closed.
    #[error("the store was closed: open it and watch again")]
    Closed,
}
