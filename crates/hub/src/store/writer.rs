//! The one thread that changes the store.
//!
//! Group commit: it takes all queued transactions, checks them in order, makes them durable with
//! one sync, then publishes them and replies. The next batch gathers while the disk is busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::disk::DiskStorage;
use super::error::{CommitError, StoreError};
use super::state::WriteBatch;
use super::types::{StoreOp, TransactionResult};
use super::watch::SharedState;

/// Capacity of the queue. Further transactions wait for space.
pub(super) const QUEUE_CAPACITY: usize = 4096;
/// Maximum size of a batch, so that those behind it do not wait long.
const BATCH_BYTES: usize = 4 << 20;
/// Pause after a disk failure.
const DISK_RETRY_DELAY: Duration = Duration::from_millis(500);
/// How often the free space is checked, at most.
const SPACE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The result of a transaction.
pub(super) type CommitResult = Result<TransactionResult, CommitError>;

/// A command to the writer.
#[derive(Debug)]
pub(super) enum WriterCommand {
    /// Commit a transaction.
    Commit(PendingTransaction),
    /// Drop compacted history from the disk.
    Compact,
    /// Stop after everything queued before.
    Close(oneshot::Sender<()>),
}

/// A queued transaction.
#[derive(Debug)]
pub(super) struct PendingTransaction {
    pub(super) ops: Vec<StoreOp>,
    pub(super) reply: oneshot::Sender<CommitResult>,
}

/// The writer's side of the store.
#[derive(Debug)]
pub(super) struct StoreWriter {
    pub(super) shared: Arc<SharedState>,
    pub(super) disk: Option<DiskStorage>,
    pub(super) commands: mpsc::Receiver<WriterCommand>,
    pub(super) writable: Arc<AtomicBool>,
    pub(super) failure: Option<DiskFailure>,
    /// Whether only changes that free space are accepted.
    pub(super) low_space: bool,
    pub(super) next_space_check: Option<Instant>,
}

/// A disk failure. Nothing is written until the data file is recovered.
#[derive(Debug)]
pub(super) struct DiskFailure {
    error: StoreError,
    retry_at: Instant,
}

/// The commands of one batch.
#[derive(Default)]
struct QueuedWork {
    transactions: Vec<PendingTransaction>,
    bytes: usize,
    compact: bool,
    close: Option<oneshot::Sender<()>>,
}

impl QueuedWork {
    fn add(&mut self, message: WriterCommand) {
        match message {
            WriterCommand::Commit(transaction) => {
                self.bytes += transaction.ops.iter().map(StoreOp::size).sum::<usize>();
                self.transactions.push(transaction);
            }
            WriterCommand::Compact => self.compact = true,
            WriterCommand::Close(done) => self.close = Some(done),
        }
    }

    fn is_full(&self) -> bool {
        self.close.is_some()
            || self.bytes >= BATCH_BYTES
            || self.transactions.len() >= QUEUE_CAPACITY
    }
}

impl StoreWriter {
    /// Runs until it is stopped or all senders are gone.
    pub(super) fn run(mut self) {
        let mut close = None;
        while let Some(message) = self.commands.blocking_recv() {
            let mut work = QueuedWork::default();
            work.add(message);
            while !work.is_full() {
                let Ok(message) = self.commands.try_recv() else { break };
                work.add(message);
            }
            close = work.close.take();
            self.commit_batch(work);
            if close.is_some() {
                break;
            }
        }
        self.commands.close();
        if let Some(disk) = self.disk.take() {
            disk.close(self.shared.state.read().revision);
        }
        self.shared.close();
        if let Some(done) = close {
            let _ = done.send(());
        }
    }

    fn commit_batch(&mut self, work: QueuedWork) {
        self.check_space();
        let full = self.low_space.then(|| self.disk.as_ref().map(|disk| disk.path().to_owned()));
        let full = full.flatten();
        let (batch, replies, floor) = {
            let state = self.shared.state.read();
            let mut batch = WriteBatch::new(state.revision);
            let replies: Vec<(oneshot::Sender<CommitResult>, CommitResult)> = work
                .transactions
                .into_iter()
                .map(|PendingTransaction { ops, reply }| {
                    let grows = || ops.iter().any(|op| op.grows(state.entries.get(op.key())));
                    let result = match &full {
                        Some(path) if grows() => {
                            Err(StoreError::DiskFull { path: path.clone() }.into())
                        }
                        _ => batch.add(&state, &ops),
                    };
                    (reply, result)
                })
                .collect();
            // The history holds what was deleted. On a full disk that space is needed.
            let floor = match &full {
                Some(_) => state.revision,
                None => state.history.floor_with(batch.events.iter()),
            };
            (batch, replies, floor)
        };
        let changes = !batch.events.is_empty();
        let persisted = if changes || work.compact { self.persist(&batch, floor) } else { Ok(()) };
        match persisted {
            Ok(()) => {
                if changes {
                    self.publish(&batch, floor);
                }
                for (reply, result) in replies {
                    let _ = reply.send(result); // the client may be gone
                }
            }
            // Even a conflict may be with a transaction of this batch, which now fails.
            Err(error) => {
                for (reply, _) in replies {
                    let _ = reply.send(Err(CommitError::Store(error.clone())));
                }
            }
        }
    }

    fn persist(&mut self, batch: &WriteBatch, floor: u64) -> Result<(), StoreError> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        if let Some(failure) = &self.failure {
            if Instant::now() < failure.retry_at {
                return Err(failure.error.clone());
            }
            let started = Instant::now();
            let recovered = disk.recover(&self.shared.state.read());
            if let Err(error) = recovered {
                return Err(self.fail(error, started.elapsed()));
            }
            tracing::info!("store recovered from a disk error");
            self.failure = None;
            self.writable.store(true, Ordering::Relaxed);
        }
        match disk.write(batch, floor) {
            Ok(()) => Ok(()),
            Err(error) if error.is_disk_full() => self.survive_full_disk(batch, error),
            Err(error) => Err(self.fail(error, Duration::ZERO)),
        }
    }

    /// Gives up the reserve, and writes the batch again if it only frees space.
    fn survive_full_disk(
        &mut self,
        batch: &WriteBatch,
        error: StoreError,
    ) -> Result<(), StoreError> {
        self.low_space = true;
        self.next_space_check = Some(Instant::now() + SPACE_CHECK_INTERVAL / 4);
        let Some(disk) = &mut self.disk else { return Err(error) };
        let state = self.shared.state.read();
        // The reserve is for deletes. A refused change usually leaves enough to open the file again.
        let frees_space = batch.frees_space();
        let reopened = !frees_space && disk.recover(&state).is_ok();
        if !reopened && (!disk.reserve().release() || disk.recover(&state).is_err()) {
            drop(state);
            return Err(self.fail(error, Duration::ZERO));
        }
        let floor = state.revision;
        drop(state);
        self.writable.store(false, Ordering::Relaxed);
        tracing::error!(%error, "disk is full; only deletes are accepted until there is space");
        if frees_space {
            let written = disk.write(batch, floor);
            disk.reserve().hold();
            return written.map_err(|error| self.fail(error, Duration::ZERO));
        }
        Err(StoreError::DiskFull { path: disk.path().to_owned() })
    }

    /// Compares the free space with the reserve.
    fn check_space(&mut self) {
        let Some(disk) = &self.disk else { return };
        if self.next_space_check.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let started = Instant::now();
        let low = disk.reserve().is_low(self.low_space, || disk.reusable_bytes());
        // On a full disk clients wait for the end of it, but checking a large file takes a while.
        let interval = if low { SPACE_CHECK_INTERVAL / 4 } else { SPACE_CHECK_INTERVAL };
        self.next_space_check = Some(Instant::now() + interval.max(started.elapsed() * 20));
        if low != self.low_space {
            let path = disk.path().display();
            if low {
                tracing::error!(%path, "disk is nearly full; only deletes are accepted until there is space");
            } else {
                tracing::info!(%path, "disk has space again; all changes are accepted");
            }
            self.low_space = low;
        }
        if self.failure.is_none() {
            self.writable.store(!low, Ordering::Relaxed);
        }
    }

    fn fail(&mut self, error: StoreError, took: Duration) -> StoreError {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        tracing::error!(%error, source, "store cannot write; changes are refused until the disk recovers");
        self.writable.store(false, Ordering::Relaxed);
        let retry = Instant::now() + DISK_RETRY_DELAY.max(took * 4);
        self.failure = Some(DiskFailure { error: error.clone(), retry_at: retry });
        error
    }

    fn publish(&self, batch: &WriteBatch, floor: u64) {
        let mut wakers = Vec::new();
        {
            let mut state = self.shared.state.write();
            let first = state.history.next_sequence();
            state.publish(batch, floor);
            let index = self.shared.index.lock();
            for (sequence, event) in (first..).zip(&batch.events) {
                index.notify(&event.entry.key, sequence, &mut wakers);
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}
