//! What can go wrong, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::types::StoreEntry;

/// The store cannot do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: Arc<io::Error>,
    },
    /// Another process has the data directory.
    #[error(
        "the data directory {} is in use by {holder}: stop it, or choose another directory",
        dir.display()
    )]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The process that holds it, as far as known.
        holder: String,
    },
    /// The data were written by a newer program.
    #[error(
        "{} has format {found}, this program knows up to {known}: use the program that wrote it, \
         or a newer one",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format it has.
        found: String,
        /// The newest format that this program knows.
        known: u32,
    },
    /// A data or backup file is not as it was written.
    #[error("{} is damaged ({what}): {remedy}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The target of a restore is not a fresh directory.
    #[error("{} is not empty (it has {found}): restore into a fresh directory", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
        /// A file that is in it.
        found: String,
    },
    /// The data file cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    Database {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: Arc<redb::Error>,
    },
    /// The disk did not take a transaction. It is not visible to anyone and counts as not made;
    /// only if the process ends before the disk works again may it be there after the restart.
    #[error(
        "cannot write {}: the change was not made; free space or check the disk, then try again",
        path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// A value is larger than the store takes.
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

    pub(super) fn corrupt(path: &Path, what: impl Into<String>) -> Self {
        const REMEDY: &str = "restore a backup into a fresh directory";
        Self::Corrupt { path: path.to_owned(), what: what.into(), remedy: REMEDY }
    }
}

/// A transaction did not go through; nothing of it was done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// An expectation did not hold.
    #[error("{}", conflict(*op, found.as_ref()))]
    Conflict {
        /// The step whose expectation it was.
        op: usize,
        /// What was found.
        found: Option<StoreEntry>,
    },
    /// The store could not keep it.
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

/// A revision cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevisionError {
    /// The history does not reach back that far any more.
    #[error("revision {requested} is too old, the history starts at {oldest}: list again")]
    Compacted {
        /// The revision that was asked for.
        requested: u64,
        /// The oldest revision that can be served.
        oldest: u64,
    },
    /// The revision is in the future.
    #[error("revision {requested} is not there yet, the newest is {current}: try again later")]
    FutureRevision {
        /// The revision that was asked for.
        requested: u64,
        /// The newest revision.
        current: u64,
    },
    /// The store was closed while watching.
    #[error("the store was closed: open it and watch again")]
    Closed,
}
