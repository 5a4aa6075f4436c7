//! Watches pull from the shared history. A change wakes only the watches that match it.
//!
//! ```text
//! publish(event) ─→ Index: which prefixes does the key have? ─→ Waiter: note the sequence, wake
//!                                                                  ↓
//!                                       Watch::next ─→ History: the event with that sequence
//! ```
//!
//! A waiter queues the sequence numbers of its next few events, so a watch goes straight to them.
//! When the queue is full it records where to continue searching the history. A watch with nothing
//! queued has seen everything: however idle, it never falls behind the history.
//!
//! Lock order: state, index, waiter. Publishing holds the state for writing, so a reader of the
//! state sees history and waiters agree.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, RwLock};

use super::error::RevisionError;
use super::state::StoreState;
use super::types::StoreEvent;

/// Sequence numbers that a waiter queues.
const INLINE_SEQUENCES: usize = 4;

/// The published state and its waiters.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) state: RwLock<StoreState>,
    pub(super) index: Mutex<WaiterIndex>,
}

impl SharedState {
    pub(super) fn new(state: StoreState) -> Self {
        Self { state: RwLock::new(state), index: Mutex::new(WaiterIndex::default()) }
    }

    /// Ends all watches.
    pub(super) fn close(&self) {
        self.state.write().closed = true;
        let wakers = self.index.lock().wakers();
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn watch(
        self: &Arc<Self>,
        prefix: &str,
        after: u64,
    ) -> Result<StoreWatch, RevisionError> {
        let state = self.state.read();
        state.check_revision(after)?;
        let start = state.history.sequence_after(after);
        let scan = (start < state.history.next_sequence()).then_some(start);
        let waiter = Arc::new(WatchWaiter {
            prefix: prefix.as_bytes().into(),
            index_position: AtomicUsize::new(0),
            pending: Mutex::new(PendingEvents { scan_from: scan, ..PendingEvents::default() }),
        });
        self.index.lock().add(Arc::clone(&waiter));
        Ok(StoreWatch { shared: Arc::clone(self), waiter, last_revision: after })
    }
}

/// The waiters by prefix.
#[derive(Debug, Default)]
pub(super) struct WaiterIndex {
    waiters: BTreeMap<Arc<[u8]>, Vec<Arc<WatchWaiter>>>,
}

impl WaiterIndex {
    /// Queues an event at all matching waiters and collects the wakers.
    ///
    /// Finds the stored prefixes of a key from the longest to the shortest: the greatest stored
    /// string up to the key either is a prefix of it, or its common part with the key limits the
    /// length of the next candidate.
    pub(super) fn notify(&self, key: &str, sequence: u64, wakers: &mut Vec<Waker>) {
        let key = key.as_bytes();
        let mut bound = Bound::Included(key);
        while let Some((prefix, waiters)) =
            self.waiters.range::<[u8], _>((Bound::Unbounded, bound)).next_back()
        {
            let common = key.iter().zip(prefix.iter()).take_while(|(a, b)| a == b).count();
            if common < prefix.len() {
                bound = Bound::Included(&key[..common]);
                continue;
            }
            wakers.extend(waiters.iter().filter_map(|waiter| waiter.notify(sequence)));
            bound = Bound::Excluded(&key[..common]);
        }
    }

    fn wakers(&self) -> Vec<Waker> {
        let waiters = self.waiters.values().flatten();
        waiters.filter_map(|waiter| waiter.pending.lock().waker.take()).collect()
    }

    fn add(&mut self, waiter: Arc<WatchWaiter>) {
        let waiters = self.waiters.entry(Arc::clone(&waiter.prefix)).or_default();
        waiter.index_position.store(waiters.len(), Ordering::Relaxed);
        waiters.push(waiter);
    }

    fn remove(&mut self, waiter: &WatchWaiter) {
        let Some(waiters) = self.waiters.get_mut(&waiter.prefix) else { return };
        let place = waiter.index_position.load(Ordering::Relaxed);
        if place < waiters.len() {
            waiters.swap_remove(place);
        }
        if let Some(moved) = waiters.get(place) {
            moved.index_position.store(place, Ordering::Relaxed);
        }
        if waiters.is_empty() {
            self.waiters.remove(&waiter.prefix);
        }
    }
}

/// The part of a watch that the publisher knows.
#[derive(Debug)]
struct WatchWaiter {
    prefix: Arc<[u8]>,
    /// Position among the waiters of its prefix; guarded by the index lock.
    index_position: AtomicUsize,
    pending: Mutex<PendingEvents>,
}

impl WatchWaiter {
    fn notify(&self, sequence: u64) -> Option<Waker> {
        let mut notes = self.pending.lock();
        notes.push(sequence);
        notes.waker.take()
    }
}

/// Events that a watch has not returned yet.
#[derive(Debug, Default)]
struct PendingEvents {
    /// The queued events, `count` of them.
    next: [u64; INLINE_SEQUENCES],
    count: usize,
    /// Where to continue searching the history after these.
    scan_from: Option<u64>,
    waker: Option<Waker>,
}

impl PendingEvents {
    fn push(&mut self, sequence: u64) {
        if self.scan_from.is_some() {
            return;
        }
        match self.next.get_mut(self.count) {
            Some(slot) => {
                *slot = sequence;
                self.count += 1;
            }
            None => self.scan_from = Some(sequence),
        }
    }

    fn first(&self) -> Option<u64> {
        if self.count > 0 { Some(self.next[0]) } else { self.scan_from }
    }

    fn pop(&mut self) {
        self.next.rotate_left(1);
        self.count -= 1;
    }
}

/// A stream of the events after a revision whose keys start with a prefix.
#[derive(Debug)]
pub struct StoreWatch {
    shared: Arc<SharedState>,
    waiter: Arc<WatchWaiter>,
    /// Lower bound of [`StoreWatch::observed_revision`].
    last_revision: u64,
}

impl StoreWatch {
    /// Waits for the next event. Cancel safe: only dropping the watch loses events.
    ///
    /// # Errors
    /// The next event has been compacted: list again. Or the store is closed and all its events
    /// were returned.
    pub async fn next(&mut self) -> Result<Arc<StoreEvent>, RevisionError> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Returns the next event if there is one already.
    ///
    /// # Errors
    /// Like [`StoreWatch::next`].
    pub fn try_next(&mut self) -> Result<Option<Arc<StoreEvent>>, RevisionError> {
        match self.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(event) => event.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Like [`StoreWatch::next`], for hand-written futures.
    ///
    /// # Errors
    /// Like [`StoreWatch::next`].
    pub fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Arc<StoreEvent>, RevisionError>> {
        let state = self.shared.state.read();
        let mut notes = self.waiter.pending.lock();
        let event = match next_pending(&state, &mut notes, &self.waiter.prefix) {
            Ok(Some(event)) => event,
            Ok(None) if state.closed => return Poll::Ready(Err(RevisionError::Closed)),
            Ok(None) => {
                self.last_revision = state.revision;
                let stale = notes.waker.replace(context.waker().clone());
                drop((notes, state));
                drop(stale); // may drop a task and its watches: not under a lock
                return Poll::Pending;
            }
            Err(()) => {
                let oldest = state.history.floor();
                return Poll::Ready(Err(RevisionError::Compacted {
                    requested: self.last_revision,
                    oldest,
                }));
            }
        };
        self.last_revision = seen(&state, &notes, self.last_revision);
        Poll::Ready(Ok(event))
    }

    /// The revision up to which every matching event was returned. It advances also if nothing
    /// matches.
    #[must_use]
    pub fn observed_revision(&self) -> u64 {
        let state = self.shared.state.read();
        let notes = self.waiter.pending.lock();
        seen(&state, &notes, self.last_revision)
    }
}

impl Drop for StoreWatch {
    fn drop(&mut self) {
        self.shared.index.lock().remove(&self.waiter);
    }
}

/// Removes and returns the next event. `Err` if it has been compacted.
fn next_pending(
    state: &StoreState,
    notes: &mut PendingEvents,
    prefix: &[u8],
) -> Result<Option<Arc<StoreEvent>>, ()> {
    if notes.count > 0 {
        let event = state.history.get(notes.next[0]).ok_or(())?;
        notes.pop();
        return Ok(Some(Arc::clone(event)));
    }
    let Some(scan) = notes.scan_from else { return Ok(None) };
    let Some(found) = state.history.find_prefix(scan, prefix).map_err(|_| ())? else {
        notes.scan_from = None;
        return Ok(None);
    };
    let next = found + 1;
    notes.scan_from = (next < state.history.next_sequence()).then_some(next);
    Ok(state.history.get(found).cloned())
}

fn seen(state: &StoreState, notes: &PendingEvents, last: u64) -> u64 {
    match notes.first() {
        None => state.revision,
        Some(next) => state.history.get(next).map_or(last, |event| last.max(event.revision - 1)),
    }
}
