//! The one thread that changes the store.
//!
//! It takes all transactions that wait, checks them in order, makes them durable together, then
//! publishes and answers them: that is the group commit. While the disk is busy with one batch the
//! next one gathers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::disk::Disk;
use super::error::{CommitError, StoreError};
use super::memory::Batch;
use super::types::{Committed, Op};
use super::watch::Shared;

/// How many transactions may wait; who comes later waits to be let in.
pub(super) const QUEUE: usize = 4096;
/// How many bytes a batch may hold before it is closed: who waits behind it must not wait long.
const BATCH_BYTES: usize = 4 << 20;
/// How long to leave a disk alone that failed.
const RETRY: Duration = Duration::from_millis(500);

/// The answer to a transaction.
pub(super) type Answer = Result<Committed, CommitError>;

/// What the writer is asked to do.
#[derive(Debug)]
pub(super) enum Message {
    /// To make a transaction.
    Commit(Transaction),
    /// To forget on disk what memory has forgotten.
    Compact,
    /// To stop, after all that was asked before.
    Close(oneshot::Sender<()>),
}

/// A transaction that waits.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) ops: Vec<Op>,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// The writer's side of the store.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) disk: Option<Disk>,
    pub(super) inbox: mpsc::Receiver<Message>,
    pub(super) writable: Arc<AtomicBool>,
    pub(super) failure: Option<Failure>,
}

/// The disk failed: nothing is written until the data file could be recovered.
#[derive(Debug)]
pub(super) struct Failure {
    error: StoreError,
    retry: Instant,
}

/// All that waited when the writer looked.
#[derive(Default)]
struct Work {
    transactions: Vec<Transaction>,
    bytes: usize,
    compact: bool,
    close: Option<oneshot::Sender<()>>,
}

impl Work {
    fn add(&mut self, message: Message) {
        match message {
            Message::Commit(transaction) => {
                self.bytes += transaction.ops.iter().map(Op::size).sum::<usize>();
                self.transactions.push(transaction);
            }
            Message::Compact => self.compact = true,
            Message::Close(done) => self.close = Some(done),
        }
    }

    fn is_full(&self) -> bool {
        self.close.is_some() || self.bytes >= BATCH_BYTES || self.transactions.len() >= QUEUE
    }
}

impl Writer {
    /// Works until it is told to stop or nobody is left who could ask.
    pub(super) fn run(mut self) {
        let mut close = None;
        while let Some(message) = self.inbox.blocking_recv() {
            let mut work = Work::default();
            work.add(message);
            while !work.is_full() {
                let Ok(message) = self.inbox.try_recv() else { break };
                work.add(message);
            }
            close = work.close.take();
            self.batch(work);
            if close.is_some() {
                break;
            }
        }
        self.inbox.close();
        if let Some(disk) = self.disk.take() {
            disk.close(self.shared.state.read().revision);
        }
        self.shared.close();
        if let Some(done) = close {
            let _ = done.send(());
        }
    }

    fn batch(&mut self, work: Work) {
        let (batch, answers, floor) = {
            let state = self.shared.state.read();
            let mut batch = Batch::new(state.revision);
            let answers: Vec<(oneshot::Sender<Answer>, Answer)> = work
                .transactions
                .into_iter()
                .map(|Transaction { ops, answer }| (answer, batch.add(&state, &ops)))
                .collect();
            let floor = state.history.floor_with(batch.events.iter());
            (batch, answers, floor)
        };
        let changes = !batch.events.is_empty();
        let persisted = if changes || work.compact { self.persist(&batch, floor) } else { Ok(()) };
        match persisted {
            Ok(()) => {
                if changes {
                    self.publish(&batch, floor);
                }
                for (answer, result) in answers {
                    let _ = answer.send(result); // who asked may have gone
                }
            }
            // Even a conflict may be one with a transaction of this batch, which now is not.
            Err(error) => {
                for (answer, _) in answers {
                    let _ = answer.send(Err(CommitError::Store(error.clone())));
                }
            }
        }
    }

    fn persist(&mut self, batch: &Batch, floor: u64) -> Result<(), StoreError> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        if let Some(failure) = &self.failure {
            if Instant::now() < failure.retry {
                return Err(failure.error.clone());
            }
            let started = Instant::now();
            let recovered = disk.recover(&self.shared.state.read());
            if let Err(error) = recovered {
                return Err(self.fail(error, started.elapsed()));
            }
            tracing::info!("store recovered from a disk error: it takes changes again");
            self.failure = None;
            self.writable.store(true, Ordering::Relaxed);
        }
        disk.write(batch, floor).map_err(|error| self.fail(error, Duration::ZERO))
    }

    fn fail(&mut self, error: StoreError, took: Duration) -> StoreError {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        tracing::error!(%error, source, "store cannot write: changes are refused until it can");
        self.writable.store(false, Ordering::Relaxed);
        let retry = Instant::now() + RETRY.max(took * 4);
        self.failure = Some(Failure { error: error.clone(), retry });
        error
    }

    fn publish(&self, batch: &Batch, floor: u64) {
        let mut wakers = Vec::new();
        {
            let mut state = self.shared.state.write();
            let first = state.history.end();
            state.publish(batch, floor);
            let index = self.shared.index.lock();
            for (sequence, event) in (first..).zip(&batch.events) {
                index.note(&event.entry.key, sequence, &mut wakers);
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}
