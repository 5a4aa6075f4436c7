//! The store: keys and bytes, one growing revision, transactions, history and watches.
//!
//! ```text
//! commit ─→ queue ─→ writer thread: check ─→ redb, one fsync ─→ publish ─→ answer
//!                                                                 │
//!                    get, list, list_at  ←─ memory: entries ←─────┤
//!                    watch, Watch::next  ←─ memory: history ←─────┘
//! ```
//!
//! - All live entries are in memory; reads never touch the disk and never wait for it.
//! - A transaction is durable when [`Store::commit`] returns, and nobody sees it before that, nor a
//!   part of it. It has one revision, which all its events share.
//! - The revision never goes back, whenever the process is killed. An empty store is at 1.
//! - The newest events are kept, in memory and on disk: a watch from an older revision resumes,
//!   also after a restart, and a list can be a view of an older revision.
//! - An idle watch costs a few hundred bytes, and a change wakes only the watches it concerns.
//! - When the disk fails, the transactions of that batch fail, and all later ones until the data
//!   file could be checked, or written anew from memory. Reads and watches go on.
//!
//! [`Store::in_memory`] is the same without a disk, for tests.

mod backup;
mod codec;
mod dir;
mod disk;
mod error;
#[cfg(test)]
mod faults;
mod file;
mod history;
mod memory;
mod types;
mod watch;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use tokio::io::AsyncWrite;
use tokio::sync::{mpsc, oneshot};

pub use backup::Backup;
pub use error::{CommitError, StoreError, TooOld};
pub use types::{Committed, Entry, Event, EventKind, Expect, Op, Options, Page};
pub use watch::Watch;

use crate::figures;
use disk::Disk;
use file::Switch;
use memory::State;
use watch::Shared;
use writer::{Message, Transaction, Writer};

/// The store. A clone is the same store; when the last one goes, the store is closed.
#[derive(Clone, Debug)]
pub struct Store {
    handle: Arc<Handle>,
}

/// How large a store is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// How many entries it has.
    pub(crate) objects: u64,
    /// How many bytes their keys and values have.
    pub(crate) bytes: u64,
    /// How large its file is; 0 without one.
    pub(crate) file_bytes: u64,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    inbox: Option<mpsc::Sender<Message>>,
    writable: Arc<AtomicBool>,
    commits: Histogram,
    /// The data file, where there is a disk.
    file: Option<PathBuf>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// Opens the store in a directory, which it makes if need be and keeps for itself.
    ///
    /// # Errors
    /// If another process has the directory, the data are damaged or of a newer format, or the disk
    /// does not work.
    pub fn open(dir: &Path, options: Options) -> Result<Self, StoreError> {
        Self::open_with(dir, options, Switch::default())
    }

    fn open_with(dir: &Path, options: Options, switch: Switch) -> Result<Self, StoreError> {
        let (disk, state) = Disk::open(dir, options, switch)?;
        Ok(Self::start(state, Some(disk)))
    }

    /// An empty store without a disk: the same behaviour, for tests.
    #[must_use]
    pub fn in_memory(options: Options) -> Self {
        Self::start(State::empty(options), None)
    }

    fn start(state: State, disk: Option<Disk>) -> Self {
        let shared = Arc::new(Shared::new(state));
        let file = disk.as_ref().map(|disk| disk.path().to_owned());
        let (sender, inbox) = mpsc::channel(writer::QUEUE);
        let writable = Arc::new(AtomicBool::new(true));
        let writer = Writer {
            shared: Arc::clone(&shared),
            disk,
            inbox,
            writable: Arc::clone(&writable),
            failure: None,
        };
        let thread = std::thread::Builder::new().name("hub-store".into());
        let thread = thread
            .spawn(move || writer.run())
            .inspect_err(|error| tracing::error!(%error, "store has no writer thread"))
            .ok(); // the inbox is gone with the writer: commits answer `Closed`
        let handle = Handle {
            shared,
            inbox: Some(sender),
            writable,
            commits: figures::durations(),
            file,
            thread: Mutex::new(thread),
        };
        Self { handle: Arc::new(handle) }
    }

    /// The revision of the newest durable transaction; 1 if there was none.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.handle.shared.state.read().revision
    }

    /// The entry of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Entry> {
        self.handle.shared.state.read().entries.get(key).cloned()
    }

    /// The entries whose keys start with `prefix`, sorted by key: those after `start_after`, at
    /// most `limit` of them.
    #[must_use]
    pub fn list(&self, prefix: &str, start_after: Option<&str>, limit: Option<usize>) -> Page {
        self.handle.shared.state.read().list(prefix, start_after, limit)
    }

    /// As [`Store::list`], as it was at an older revision.
    ///
    /// # Errors
    /// If the history does not reach back that far, or the revision is in the future.
    pub fn list_at(
        &self,
        revision: u64,
        prefix: &str,
        start_after: Option<&str>,
        limit: Option<usize>,
    ) -> Result<Page, TooOld> {
        self.handle.shared.state.read().list_at(revision, prefix, start_after, limit)
    }

    /// Makes a transaction: all of it or nothing, durable when this returns.
    ///
    /// When the future is dropped before it is ready, the transaction may be made or not.
    ///
    /// # Errors
    /// If an expectation does not hold, or the store cannot keep it.
    pub async fn commit(&self, ops: Vec<Op>) -> Result<Committed, CommitError> {
        ops.iter().try_for_each(check_size)?;
        let started = Instant::now();
        let (answer, result) = oneshot::channel();
        let message = Message::Commit(Transaction { ops, answer });
        let inbox = self.handle.inbox.as_ref().ok_or(StoreError::Closed)?;
        inbox.send(message).await.map_err(|_| StoreError::Closed)?;
        let result = result.await.map_err(|_| StoreError::Closed)?;
        self.handle.commits.observe(started.elapsed().as_secs_f64());
        result
    }

    /// How long transactions took.
    pub(crate) fn commits(&self) -> &Histogram {
        &self.handle.commits
    }

    /// How large it is.
    pub(crate) fn usage(&self) -> Usage {
        let file = self.handle.file.as_ref().and_then(|path| std::fs::metadata(path).ok());
        let state = self.handle.shared.state.read();
        let bytes = state.entries.values().map(|entry| entry.key.len() + entry.value.len());
        Usage {
            objects: state.entries.len() as u64,
            bytes: bytes.sum::<usize>() as u64,
            file_bytes: file.map_or(0, |file| file.len()),
        }
    }

    /// The events after a revision whose keys start with `prefix`, past and future.
    ///
    /// # Errors
    /// If the history does not reach back that far, or the revision is in the future.
    pub fn watch(&self, prefix: &str, after: u64) -> Result<Watch, TooOld> {
        self.handle.shared.watch(prefix, after)
    }

    /// Forgets the history up to and including a revision: at once in memory, soon on disk.
    pub fn compact(&self, before: u64) {
        {
            let mut state = self.handle.shared.state.write();
            let floor = before.min(state.revision);
            state.history.forget(floor);
        }
        if let Some(inbox) = &self.handle.inbox {
            let _ = inbox.try_send(Message::Compact); // if full: the next batch does it as well
        }
    }

    /// Whether the last write to the disk worked.
    #[must_use]
    pub fn writable(&self) -> bool {
        self.handle.writable.load(Ordering::Relaxed)
    }

    /// Writes a backup of this moment, while the store goes on.
    ///
    /// # Errors
    /// If `to` does not take it.
    pub async fn backup(&self, to: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<Backup> {
        let page = self.list("", None, None);
        backup::write(to, page.revision, &page.entries).await
    }

    /// As [`Store::backup`], to a file that is there only once it is complete and durable.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub async fn backup_file(&self, path: &Path) -> Result<Backup, StoreError> {
        let page = self.list("", None, None);
        backup::write_file(path, page.revision, &page.entries).await
    }

    /// Makes a data directory from a backup, after checking all of it.
    ///
    /// The restored store starts at a revision far above the one of the backup, without history: so
    /// clients that know revisions from after the backup list again.
    ///
    /// # Errors
    /// If the backup is damaged or of a newer format, the directory is not empty, or the disk does
    /// not work. The directory then holds no store.
    pub fn restore(from: &Path, dir: &Path) -> Result<(), StoreError> {
        backup::restore(from, dir)
    }

    /// Makes the transactions that wait, then closes the store and its directory. Its clones answer
    /// further transactions with [`StoreError::Closed`]; watches end.
    pub async fn close(self) {
        let (done, closed) = oneshot::channel();
        if let Some(inbox) = &self.handle.inbox
            && inbox.send(Message::Close(done)).await.is_ok()
        {
            let _ = closed.await; // an error means that it is closed already
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inbox = None;
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join(); // at most one batch is under way
        }
    }
}

fn check_size(op: &Op) -> Result<(), StoreError> {
    let (size, limit) = (op.size(), codec::MAX_VALUE);
    if size > limit {
        return Err(StoreError::TooLarge { key: op.key().to_owned(), size, limit });
    }
    Ok(())
}
