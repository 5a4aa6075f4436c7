//! Watches: each pulls from the shared history; a change wakes only those it concerns.
//!
//! ```text
//! publish(event) ─→ Index: which prefixes does the key have? ─→ Waiter: note the sequence, wake
//!                                                                  ↓
//!                                       Watch::next ─→ History: the event with that sequence
//! ```
//!
//! A waiter notes the sequence numbers of its next few events, so a watch goes straight to them.
//! When more come than it has room for, it notes from where on to search the history. A watch with
//! nothing noted has seen everything: however idle, it never falls behind the history.
//!
//! Lock order: state, index, waiter. Publishing holds the state for writing, so whoever holds it
//! for reading sees history and waiters agree.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, RwLock};

use super::error::TooOld;
use super::memory::State;
use super::types::Event;

/// How many sequence numbers a waiter notes one by one.
const NOTES: usize = 4;

/// The published state and those who wait for it to change.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: RwLock<State>,
    pub(super) index: Mutex<Index>,
}

impl Shared {
    pub(super) fn new(state: State) -> Self {
        Self { state: RwLock::new(state), index: Mutex::new(Index::default()) }
    }

    /// Ends all watches.
    pub(super) fn close(&self) {
        self.state.write().closed = true;
        let wakers = self.index.lock().wakers();
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn watch(self: &Arc<Self>, prefix: &str, after: u64) -> Result<Watch, TooOld> {
        let state = self.state.read();
        state.check(after)?;
        let start = state.history.after(after);
        let scan = (start < state.history.end()).then_some(start);
        let waiter = Arc::new(Waiter {
            prefix: prefix.as_bytes().into(),
            place: AtomicUsize::new(0),
            notes: Mutex::new(Notes { scan, ..Notes::default() }),
        });
        self.index.lock().add(Arc::clone(&waiter));
        Ok(Watch { shared: Arc::clone(self), waiter, last: after })
    }
}

/// The waiters by their prefix.
#[derive(Debug, Default)]
pub(super) struct Index {
    waiters: BTreeMap<Arc<[u8]>, Vec<Arc<Waiter>>>,
}

impl Index {
    /// Notes an event in all waiters it concerns, and collects who is to be woken.
    ///
    /// The stored prefixes of a key are found from the longest to the shortest: the greatest stored
    /// string up to the key either is a prefix of it, or tells by its common part with the key how
    /// long the next candidate can be at most.
    pub(super) fn note(&self, key: &str, sequence: u64, wakers: &mut Vec<Waker>) {
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
            wakers.extend(waiters.iter().filter_map(|waiter| waiter.note(sequence)));
            bound = Bound::Excluded(&key[..common]);
        }
    }

    fn wakers(&self) -> Vec<Waker> {
        let waiters = self.waiters.values().flatten();
        waiters.filter_map(|waiter| waiter.notes.lock().waker.take()).collect()
    }

    fn add(&mut self, waiter: Arc<Waiter>) {
        let waiters = self.waiters.entry(Arc::clone(&waiter.prefix)).or_default();
        waiter.place.store(waiters.len(), Ordering::Relaxed);
        waiters.push(waiter);
    }

    fn remove(&mut self, waiter: &Waiter) {
        let Some(waiters) = self.waiters.get_mut(&waiter.prefix) else { return };
        let place = waiter.place.load(Ordering::Relaxed);
        if place < waiters.len() {
            waiters.swap_remove(place);
        }
        if let Some(moved) = waiters.get(place) {
            moved.place.store(place, Ordering::Relaxed);
        }
        if waiters.is_empty() {
            self.waiters.remove(&waiter.prefix);
        }
    }
}

/// The part of a watch that publishing knows.
#[derive(Debug)]
struct Waiter {
    prefix: Arc<[u8]>,
    /// Its place among the waiters of its prefix; guarded by the index's lock.
    place: AtomicUsize,
    notes: Mutex<Notes>,
}

impl Waiter {
    fn note(&self, sequence: u64) -> Option<Waker> {
        let mut notes = self.notes.lock();
        notes.push(sequence);
        notes.waker.take()
    }
}

/// What a watch has not handed out yet.
#[derive(Debug, Default)]
struct Notes {
    /// The next events, `count` of them.
    next: [u64; NOTES],
    count: usize,
    /// After these: from where on to search the history.
    scan: Option<u64>,
    waker: Option<Waker>,
}

impl Notes {
    fn push(&mut self, sequence: u64) {
        if self.scan.is_some() {
            return;
        }
        match self.next.get_mut(self.count) {
            Some(slot) => {
                *slot = sequence;
                self.count += 1;
            }
            None => self.scan = Some(sequence),
        }
    }

    fn first(&self) -> Option<u64> {
        if self.count > 0 { Some(self.next[0]) } else { self.scan }
    }

    fn pop(&mut self) {
        self.next.rotate_left(1);
        self.count -= 1;
    }
}

/// A stream of the events after a revision whose keys start with a prefix.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    waiter: Arc<Waiter>,
    /// The least that [`Watch::seen`] tells.
    last: u64,
}

impl Watch {
    /// The next event; waits until there is one. Cancel safe: an event is lost only with the watch.
    ///
    /// # Errors
    /// If the watch is so far behind that the history has forgotten its next event: list again.
    /// Also when the store was closed and all its events were handed out.
    pub async fn next(&mut self) -> Result<Arc<Event>, TooOld> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The next event if there is one already.
    ///
    /// # Errors
    /// As [`Watch::next`].
    pub fn try_next(&mut self) -> Result<Option<Arc<Event>>, TooOld> {
        match self.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(event) => event.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// As [`Watch::next`], for those who write their own futures.
    ///
    /// # Errors
    /// As [`Watch::next`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Arc<Event>, TooOld>> {
        let state = self.shared.state.read();
        let mut notes = self.waiter.notes.lock();
        let event = match take(&state, &mut notes, &self.waiter.prefix) {
            Ok(Some(event)) => event,
            Ok(None) if state.closed => return Poll::Ready(Err(TooOld::Closed)),
            Ok(None) => {
                self.last = state.revision;
                let stale = notes.waker.replace(context.waker().clone());
                drop((notes, state));
                drop(stale); // may end a task, and with it other watches: not under a lock
                return Poll::Pending;
            }
            Err(()) => {
                let oldest = state.history.floor();
                return Poll::Ready(Err(TooOld::Compacted { requested: self.last, oldest }));
            }
        };
        self.last = seen(&state, &notes, self.last);
        Poll::Ready(Ok(event))
    }

    /// Every matching event up to this revision was handed out. It grows also when nothing matched.
    #[must_use]
    pub fn seen(&self) -> u64 {
        let state = self.shared.state.read();
        let notes = self.waiter.notes.lock();
        seen(&state, &notes, self.last)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.index.lock().remove(&self.waiter);
    }
}

/// The next event, no longer noted afterwards. `Err` if the history has forgotten it.
fn take(state: &State, notes: &mut Notes, prefix: &[u8]) -> Result<Option<Arc<Event>>, ()> {
    if notes.count > 0 {
        let event = state.history.get(notes.next[0]).ok_or(())?;
        notes.pop();
        return Ok(Some(Arc::clone(event)));
    }
    let Some(scan) = notes.scan else { return Ok(None) };
    let Some(found) = state.history.find(scan, prefix).map_err(|_| ())? else {
        notes.scan = None;
        return Ok(None);
    };
    let next = found + 1;
    notes.scan = (next < state.history.end()).then_some(next);
    Ok(state.history.get(found).cloned())
}

fn seen(state: &State, notes: &Notes, last: u64) -> u64 {
    match notes.first() {
        None => state.revision,
        Some(next) => state.history.get(next).map_or(last, |event| last.max(event.revision - 1)),
    }
}
