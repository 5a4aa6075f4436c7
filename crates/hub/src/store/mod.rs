//! The store: keys and values, one increasing revision, transactions, history and watches.
//!
//! ```text
//! commit ─→ queue ─→ writer thread: check ─→ redb, one fsync ─→ publish ─→ reply
//!                                                                 │
//!                    get, list, list_at  ←─ memory: entries ←─────┤
//!                    watch, Watch::next  ←─ memory: history ←─────┘
//! ```
//!
//! - All live entries are in memory. Reads never wait for the disk.
//! - A transaction is durable when [`Store::commit`] returns. Nobody sees it or a part of it
//!   before. All its events share one revision.
//! - The revision never decreases, even if the process is killed. An empty store is at 1.
//! - The newest events are kept in memory and on disk: a watch resumes from an older revision, also
//!   after a restart, and a list can show an older revision.
//! - An idle watch costs a few hundred bytes. A change wakes only the watches that match it.
//! - On a nearly full disk only changes that free space are accepted; a reserve makes them, and a
//!   restart, possible even when nothing is left.
//! - After a disk failure the transactions of the batch fail, and all later ones until the data
//!   file is checked or rewritten from memory. Reads and watches continue.
//!
//! It does not know what the values mean. Opened by `machinist up`; used by [`crate::hub`], the
//! router and the background tasks.
//!
//! [`Store::in_memory`] behaves the same without a disk, for tests.

mod backup;
mod codec;
mod data_dir;
mod data_file;
mod disk;
mod error;
#[cfg(test)]
mod fault_sweep_tests;
#[cfg(test)]
mod fault_tests;
mod history;
mod reserve;
mod restore;
mod state;
mod types;
mod verify;
mod watch;
mod writer;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use tokio::io::AsyncWrite;
use tokio::sync::{mpsc, oneshot};

pub use backup::BackupInfo;
pub use error::{CommitError, RevisionError, StoreError};
pub use types::{
    Precondition, StoreEntry, StoreEvent, StoreEventKind, StoreOp, StoreOptions, StorePage,
    TransactionResult,
};
pub use verify::VerifiedStore;
pub use watch::StoreWatch;

pub(crate) use data_file::FileControl;
use disk::DiskStorage;
use state::StoreState;
use watch::SharedState;
use writer::{PendingTransaction, StoreWriter, WriterCommand};

/// Buckets from 0.1 ms, a response from memory, to 10 s. Requests and commits use the same, so that they compare.
pub(crate) fn duration_histogram() -> Histogram {
    Histogram::new([0.0001, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0])
}

/// The store. A clone is the same store; dropping the last one closes it.
#[derive(Clone, Debug)]
pub struct Store {
    handle: Arc<StoreHandle>,
}

/// The size of a store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreUsage {
    /// Number of entries.
    pub(crate) objects: u64,
    /// Size of all keys and values.
    pub(crate) bytes: u64,
    /// Size of the data file; 0 without one.
    pub(crate) file_bytes: u64,
}

#[derive(Debug)]
struct StoreHandle {
    shared: Arc<SharedState>,
    writer: Option<mpsc::Sender<WriterCommand>>,
    writable: Arc<AtomicBool>,
    commit_duration: Histogram,
    /// The data file; `None` in memory.
    data_file: Option<PathBuf>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// Opens the store in a directory. Creates the directory if needed and locks it.
    ///
    /// # Errors
    /// Another process uses the directory, the data are damaged or of a newer format, or the disk
    /// fails.
    pub fn open(dir: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        Self::open_with(dir, options, FileControl::default())
    }

    pub(crate) fn open_with(
        dir: &Path,
        options: StoreOptions,
        control: FileControl,
    ) -> Result<Self, StoreError> {
        let (disk, state) = DiskStorage::open(dir, options, control)?;
        Ok(Self::start(state, Some(disk)))
    }

    /// An empty store without a disk, for tests.
    #[must_use]
    pub fn in_memory(options: StoreOptions) -> Self {
        Self::start(StoreState::empty(options), None)
    }

    fn start(state: StoreState, disk: Option<DiskStorage>) -> Self {
        let shared = Arc::new(SharedState::new(state));
        let file = disk.as_ref().map(|disk| disk.path().to_owned());
        let (sender, commands) = mpsc::channel(writer::QUEUE_CAPACITY);
        let writable = Arc::new(AtomicBool::new(true));
        let writer = StoreWriter {
            shared: Arc::clone(&shared),
            disk,
            commands,
            writable: Arc::clone(&writable),
            failure: None,
            low_space: false,
            next_space_check: None,
        };
        let thread = std::thread::Builder::new().name("hub-store".into());
        let thread = thread
            .spawn(move || writer.run())
            .inspect_err(|error| tracing::error!(%error, "cannot start the store's writer thread"))
            .ok(); // without the writer, commits return `Closed`
        let handle = StoreHandle {
            shared,
            writer: Some(sender),
            writable,
            commit_duration: duration_histogram(),
            data_file: file,
            thread: Mutex::new(thread),
        };
        Self { handle: Arc::new(handle) }
    }

    /// The revision of the newest durable transaction; 1 if there was none.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.handle.shared.state.read().revision
    }

    /// Returns the entry of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<StoreEntry> {
        self.handle.shared.state.read().entries.get(key).cloned()
    }

    /// Returns the entries whose keys start with `prefix`, sorted by key: those after
    /// `start_after`, at most `limit`.
    #[must_use]
    pub fn list(&self, prefix: &str, start_after: Option<&str>, limit: Option<usize>) -> StorePage {
        self.handle.shared.state.read().list(prefix, start_after, limit)
    }

    /// Like [`Store::list`], at an older revision.
    ///
    /// # Errors
    /// The history no longer contains the revision, or it is in the future.
    pub fn list_at(
        &self,
        revision: u64,
        prefix: &str,
        start_after: Option<&str>,
        limit: Option<usize>,
    ) -> Result<StorePage, RevisionError> {
        self.handle.shared.state.read().list_at(revision, prefix, start_after, limit)
    }

    /// Commits a transaction atomically. It is durable when this returns.
    ///
    /// If the future is dropped early, the transaction may or may not be committed.
    ///
    /// # Errors
    /// A precondition failed, or the disk did.
    pub async fn commit(&self, ops: Vec<StoreOp>) -> Result<TransactionResult, CommitError> {
        ops.iter().try_for_each(check_size)?;
        let started = Instant::now();
        let (reply, result) = oneshot::channel();
        let message = WriterCommand::Commit(PendingTransaction { ops, reply });
        let commands = self.handle.writer.as_ref().ok_or(StoreError::Closed)?;
        commands.send(message).await.map_err(|_| StoreError::Closed)?;
        let result = result.await.map_err(|_| StoreError::Closed)?;
        self.handle.commit_duration.observe(started.elapsed().as_secs_f64());
        result
    }

    /// Durations of commits.
    pub(crate) fn commit_duration(&self) -> &Histogram {
        &self.handle.commit_duration
    }

    pub(crate) fn usage(&self) -> StoreUsage {
        let file = self.handle.data_file.as_ref().and_then(|path| std::fs::metadata(path).ok());
        let state = self.handle.shared.state.read();
        let bytes = state.entries.values().map(|entry| entry.key.len() + entry.value.len());
        StoreUsage {
            objects: state.entries.len() as u64,
            bytes: bytes.sum::<usize>() as u64,
            file_bytes: file.map_or(0, |file| file.len()),
        }
    }

    /// Watches the events after a revision whose keys start with `prefix`.
    ///
    /// # Errors
    /// The history no longer contains the revision, or it is in the future.
    pub fn watch(&self, prefix: &str, after: u64) -> Result<StoreWatch, RevisionError> {
        self.handle.shared.watch(prefix, after)
    }

    /// Drops the history up to and including a revision: immediately in memory, soon on disk.
    pub fn compact(&self, before: u64) {
        {
            let mut state = self.handle.shared.state.write();
            let floor = before.min(state.revision);
            state.history.compact(floor);
        }
        if let Some(commands) = &self.handle.writer {
            let _ = commands.try_send(WriterCommand::Compact); // if the queue is full, the next batch compacts
        }
    }

    /// Whether the last write to the disk succeeded.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.handle.writable.load(Ordering::Relaxed)
    }

    /// Writes a backup of the current revision. The store stays usable meanwhile.
    ///
    /// # Errors
    /// Writing to `to` failed.
    pub async fn backup(&self, to: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<BackupInfo> {
        let page = self.list("", None, None);
        backup::write(to, page.revision, &page.entries).await
    }

    /// Like [`Store::backup`], to a file that appears only when it is complete and durable. Public only for tests and
    /// benchmarks: a hub streams its backups.
    ///
    /// # Errors
    /// The file cannot be written.
    #[doc(hidden)]
    pub async fn backup_file(&self, path: &Path) -> Result<BackupInfo, StoreError> {
        let page = self.list("", None, None);
        backup::write_file(path, page.revision, &page.entries).await
    }

    /// Creates a data directory from a backup, after verifying it.
    ///
    /// The restored store starts far above the backup's revision, without history, so that clients
    /// which know later revisions list again.
    ///
    /// # Errors
    /// The backup is damaged or of a newer format, the directory is not empty, or the disk fails.
    /// The directory then contains no store.
    pub fn restore(from: &Path, dir: &Path) -> Result<(), StoreError> {
        restore::restore_file(from, dir)
    }

    /// Like [`Store::restore`], from a source that is read once. Errors name it `from`.
    ///
    /// # Errors
    /// As [`Store::restore`]; the directory may exist afterwards.
    pub fn restore_from(source: impl Read, from: &Path, dir: &Path) -> Result<(), StoreError> {
        restore::restore(source, from, dir)
    }

    /// Verifies a backup, and shows each of its entries to `visit`. Errors name it `from`.
    ///
    /// # Errors
    /// The backup is damaged or of a newer format, or cannot be read.
    pub fn check_backup(
        source: impl Read,
        from: &Path,
        visit: impl FnMut(&StoreEntry),
    ) -> Result<BackupInfo, StoreError> {
        restore::check(source, from, visit)
    }

    /// How large a backup is, but for a few bytes per object.
    #[must_use]
    pub fn backup_bytes(&self) -> u64 {
        self.usage().bytes
    }

    /// Verifies a data directory that no process uses, without changing its data.
    ///
    /// # Errors
    /// The directory is in use, its data are damaged or of a newer format, or the disk fails. The
    /// error names the file.
    pub fn verify(dir: &Path) -> Result<VerifiedStore, StoreError> {
        verify::verify(dir)
    }

    /// Commits the queued transactions, then closes the store and its directory. Later commits of
    /// its clones return [`StoreError::Closed`]; watches end.
    pub async fn close(self) {
        let (done, closed) = oneshot::channel();
        if let Some(commands) = &self.handle.writer
            && commands.send(WriterCommand::Close(done)).await.is_ok()
        {
            let _ = closed.await; // an error means it is already closed
        }
    }
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        self.writer = None;
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join(); // at most one batch is in progress
        }
    }
}

fn check_size(op: &StoreOp) -> Result<(), StoreError> {
    let (size, limit) = (op.size(), codec::MAX_VALUE_BYTES);
    if size > limit {
        return Err(StoreError::TooLarge { key: op.key().to_owned(), size, limit });
    }
    Ok(())
}
