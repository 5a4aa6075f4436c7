//! The newest events, in order and within limits.
//!
//! Besides its revision an event has a sequence number, its position since the store was opened:
//! the events of a transaction share the revision. Only whole transactions are compacted, so the
//! history always covers all of `floor() + 1 ..= current`.

use std::collections::VecDeque;
use std::sync::Arc;

use super::types::{StoreEvent, StoreOptions};

#[derive(Debug)]
pub(super) struct History {
    events: VecDeque<Arc<StoreEvent>>,
    /// Sequence number of the first event.
    first: u64,
    /// The newest compacted revision.
    floor: u64,
    bytes: usize,
    options: StoreOptions,
}

impl History {
    pub(super) fn new(floor: u64, options: StoreOptions) -> Self {
        Self { events: VecDeque::new(), first: 0, floor, bytes: 0, options }
    }

    /// The newest compacted revision. Lists and watches may start here, not before.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// Sequence number of the next event.
    pub(super) fn next_sequence(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    pub(super) fn push(&mut self, event: Arc<StoreEvent>) {
        self.bytes += event.history_bytes();
        self.events.push_back(event);
    }

    /// The event with a sequence number; `None` if it is compacted or in the future.
    pub(super) fn get(&self, sequence: u64) -> Option<&Arc<StoreEvent>> {
        let index = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.events.get(index)
    }

    /// Sequence number of the first event after a revision.
    pub(super) fn sequence_after(&self, revision: u64) -> u64 {
        self.first + self.index_after(revision) as u64
    }

    /// All events after a revision, oldest first.
    pub(super) fn events_after(
        &self,
        revision: u64,
    ) -> impl DoubleEndedIterator<Item = &Arc<StoreEvent>> {
        self.events.range(self.index_after(revision)..)
    }

    /// The first sequence number from `sequence` on whose key has the prefix. `Err` if `sequence`
    /// is compacted.
    pub(super) fn find_prefix(
        &self,
        sequence: u64,
        prefix: &[u8],
    ) -> Result<Option<u64>, Compacted> {
        let start = sequence.checked_sub(self.first).ok_or(Compacted)?;
        let start = usize::try_from(start).map_or(self.events.len(), |n| n.min(self.events.len()));
        let offset = self
            .events
            .range(start..)
            .position(|event| event.entry.key.as_bytes().starts_with(prefix));
        Ok(offset.map(|offset| self.first + (start + offset) as u64))
    }

    /// The floor that keeps the history within its limits after `events` are added.
    pub(super) fn floor_with<'a>(
        &'a self,
        events: impl ExactSizeIterator<Item = &'a Arc<StoreEvent>> + Clone,
    ) -> u64 {
        let mut count = self.events.len() + events.len();
        let mut bytes =
            self.bytes + events.clone().map(|event| event.history_bytes()).sum::<usize>();
        let mut floor = self.floor;
        for event in self.events.iter().chain(events) {
            if count <= self.options.history && bytes <= self.options.history_bytes {
                break;
            }
            floor = event.revision;
            count -= 1;
            bytes -= event.history_bytes();
        }
        floor
    }

    /// Drops all events up to and including a revision.
    pub(super) fn compact(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        while let Some(event) = self.events.front().filter(|event| event.revision <= floor) {
            self.bytes -= event.history_bytes();
            self.first += 1;
            self.events.pop_front();
        }
    }

    fn index_after(&self, revision: u64) -> usize {
        self.events.partition_point(|event| event.revision <= revision)
    }
}

/// The requested event has been compacted.
#[derive(Debug)]
pub(super) struct Compacted;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::types::{StoreEntry, StoreEventKind};
    use super::*;

    fn event(key: &str, revision: u64) -> Arc<StoreEvent> {
        let entry =
            StoreEntry { key: key.into(), value: Bytes::new(), created: revision, revision };
        Arc::new(StoreEvent { revision, kind: StoreEventKind::Put, entry, previous: None })
    }

    fn history(count: usize) -> History {
        let mut history =
            History::new(1, StoreOptions { history: count, ..StoreOptions::default() });
        for (key, revision) in [("a", 2), ("b", 2), ("a", 3), ("c", 4)] {
            history.push(event(key, revision));
        }
        history
    }

    #[test]
    fn transactions_are_compacted_as_a_whole() {
        let mut history = history(4);
        let new = [event("d", 5)];
        assert_eq!(history.floor_with(new.iter()), 2, "both events of revision 2 are dropped");
        history.push(Arc::clone(&new[0]));
        history.compact(2);
        assert_eq!((history.floor(), history.first, history.next_sequence()), (2, 2, 5));
        assert_eq!(history.sequence_after(2), 2);
        assert_eq!(history.sequence_after(4), 4);
        assert!(history.get(1).is_none() && history.get(5).is_none());
    }

    #[test]
    fn a_transaction_larger_than_the_history_empties_it() {
        let history = history(1);
        let new = [event("d", 5), event("e", 5)];
        assert_eq!(history.floor_with(new.iter()), 5);
    }

    #[test]
    fn bytes_bound_the_history_too() {
        let mut history = history(100);
        history.options.history_bytes = 3 * event("a", 1).history_bytes();
        assert_eq!(history.floor_with([].iter()), 2);
    }

    #[test]
    fn finds_the_next_event_with_a_prefix() {
        let mut history = history(100);
        assert_eq!(history.find_prefix(0, b"a").unwrap(), Some(0));
        assert_eq!(history.find_prefix(1, b"a").unwrap(), Some(2));
        assert_eq!(history.find_prefix(3, b"a").unwrap(), None);
        assert_eq!(history.find_prefix(1, b"").unwrap(), Some(1));
        history.compact(3);
        assert!(history.find_prefix(1, b"a").is_err());
    }
}
