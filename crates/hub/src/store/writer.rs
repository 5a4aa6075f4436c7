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
        let (batch, replies, floor) = {
            let state = self.shared.state.read();
            let mut batch = WriteBatch::new(state.revision);
            let replies: Vec<(oneshot::Sender<CommitResult>, CommitResult)> = work
                .transactions
                .into_iter()
                .map(|PendingTransaction { ops, reply }| (reply, batch.add(&state, &ops)))
                .collect();
            let floor = state.history.floor_with(batch.events.iter());
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
        disk.write(batch, floor).map_err(|error| self.fail(error, Duration::ZERO))
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
