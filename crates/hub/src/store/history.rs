//! The newest events, in order, within bounds.
//!
//! An event has a sequence number (its place since the store was opened) beside its revision:
//! several events of one transaction share the revision. Whole transactions are forgotten at
//! once, so the history covers all of `floor() + 1 ..= current` at any time.

use std::collections::VecDeque;
use std::sync::Arc;

use super::types::{Event, Options};

#[derive(Debug)]
pub(super) struct History {
    events: VecDeque<Arc<Event>>,
    /// The sequence number of the first event.
    first: u64,
    /// The newest revision that is forgotten.
    floor: u64,
    bytes: usize,
    options: Options,
}

impl History {
    pub(super) fn new(floor: u64, options: Options) -> Self {
        Self { events: VecDeque::new(), first: 0, floor, bytes: 0, options }
    }

    /// The newest revision that is forgotten: views and watches may start here, not before.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// The sequence number that the next event will get.
    pub(super) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    pub(super) fn push(&mut self, event: Arc<Event>) {
        self.bytes += event.cost();
        self.events.push_back(event);
    }

    /// The event with a sequence number; none if it is forgotten or not there yet.
    pub(super) fn get(&self, sequence: u64) -> Option<&Arc<Event>> {
        let index = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.events.get(index)
    }

    /// The sequence number of the first event after a revision.
    pub(super) fn after(&self, revision: u64) -> u64 {
        self.first + self.index_after(revision) as u64
    }

    /// All events after a revision, oldest first.
    pub(super) fn since(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        self.events.range(self.index_after(revision)..)
    }

    /// The first sequence number from `sequence` on whose event has a key with the prefix.
    /// `Err` if `sequence` is forgotten.
    pub(super) fn find(&self, sequence: u64, prefix: &[u8]) -> Result<Option<u64>, Forgotten> {
        let start = sequence.checked_sub(self.first).ok_or(Forgotten)?;
        let start = usize::try_from(start).map_or(self.events.len(), |n| n.min(self.events.len()));
        let offset = self
            .events
            .range(start..)
            .position(|event| event.entry.key.as_bytes().starts_with(prefix));
        Ok(offset.map(|offset| self.first + (start + offset) as u64))
    }

    /// What the floor must be once `events` are added, to stay within the bounds.
    pub(super) fn floor_with<'a>(
        &'a self,
        events: impl ExactSizeIterator<Item = &'a Arc<Event>> + Clone,
    ) -> u64 {
        let mut count = self.events.len() + events.len();
        let mut bytes = self.bytes + events.clone().map(|event| event.cost()).sum::<usize>();
        let mut floor = self.floor;
        for event in self.events.iter().chain(events) {
            if count <= self.options.history && bytes <= self.options.history_bytes {
                break;
            }
            floor = event.revision;
            count -= 1;
            bytes -= event.cost();
        }
        floor
    }

    /// Forgets all events up to and including a revision.
    pub(super) fn forget(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        while let Some(event) = self.events.front().filter(|event| event.revision <= floor) {
            self.bytes -= event.cost();
            self.first += 1;
            self.events.pop_front();
        }
    }

    fn index_after(&self, revision: u64) -> usize {
        self.events.partition_point(|event| event.revision <= revision)
    }
}

/// The history does not reach back to what was asked for.
#[derive(Debug)]
pub(super) struct Forgotten;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::types::{Entry, EventKind};
    use super::*;

    fn event(key: &str, revision: u64) -> Arc<Event> {
        let entry = Entry { key: key.into(), value: Bytes::new(), created: revision, revision };
        Arc::new(Event { revision, kind: EventKind::Put, entry, previous: None })
    }

    fn history(count: usize) -> History {
        let mut history = History::new(1, Options { history: count, ..Options::default() });
        for (key, revision) in [("a", 2), ("b", 2), ("a", 3), ("c", 4)] {
            history.push(event(key, revision));
        }
        history
    }

    #[test]
    fn whole_transactions_are_forgotten() {
        let mut history = history(4);
        let new = [event("d", 5)];
        assert_eq!(history.floor_with(new.iter()), 2, "both events of revision 2 go");
        history.push(Arc::clone(&new[0]));
        history.forget(2);
        assert_eq!((history.floor(), history.first, history.end()), (2, 2, 5));
        assert_eq!(history.after(2), 2);
        assert_eq!(history.after(4), 4);
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
        history.options.history_bytes = 3 * event("a", 1).cost();
        assert_eq!(history.floor_with([].iter()), 2);
    }

    #[test]
    fn finds_the_next_event_with_a_prefix() {
        let mut history = history(100);
        assert_eq!(history.find(0, b"a").unwrap(), Some(0));
        assert_eq!(history.find(1, b"a").unwrap(), Some(2));
        assert_eq!(history.find(3, b"a").unwrap(), None);
        assert_eq!(history.find(1, b"").unwrap(), Some(1));
        history.forget(3);
        assert!(history.find(1, b"a").is_err());
    }
}
