//! The published state: live entries, revision and history.
//!
//! Only the writer thread changes it, one durable batch at a time.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::error::{CommitError, RevisionError};
use super::history::History;
use super::types::{
    StoreEntry, StoreEvent, StoreEventKind, StoreOp, StoreOptions, StorePage, TransactionResult,
    is_larger,
};

/// The revision of an empty store.
pub(super) const FIRST_REVISION: u64 = 1;

#[derive(Debug)]
pub(super) struct StoreState {
    pub(super) entries: BTreeMap<Arc<str>, StoreEntry>,
    pub(super) revision: u64,
    pub(super) history: History,
    pub(super) closed: bool,
}

impl StoreState {
    pub(super) fn empty(options: StoreOptions) -> Self {
        Self {
            entries: BTreeMap::new(),
            revision: FIRST_REVISION,
            history: History::new(FIRST_REVISION, options),
            closed: false,
        }
    }

    /// Checks that lists and watches may start at a revision.
    pub(super) fn check_revision(&self, requested: u64) -> Result<(), RevisionError> {
        let (oldest, current) = (self.history.floor(), self.revision);
        if requested > current {
            return Err(RevisionError::FutureRevision { requested, current });
        }
        if requested < oldest {
            return Err(RevisionError::Compacted { requested, oldest });
        }
        Ok(())
    }

    pub(super) fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: Option<usize>,
    ) -> StorePage {
        let live = self.range(prefix, after).map(|(_, entry)| entry);
        page(live, limit, self.revision)
    }

    pub(super) fn list_at(
        &self,
        revision: u64,
        prefix: &str,
        after: Option<&str>,
        limit: Option<usize>,
    ) -> Result<StorePage, RevisionError> {
        self.check_revision(revision)?;
        let undone = self.changed_entries_at(revision, prefix, after);
        let view = merge(self.range(prefix, after), undone.iter());
        Ok(page(view, limit, revision))
    }

    /// The state at a revision of the keys that changed since.
    fn changed_entries_at<'a>(
        &'a self,
        revision: u64,
        prefix: &str,
        after: Option<&str>,
    ) -> BTreeMap<&'a str, Option<&'a StoreEntry>> {
        let mut undone = BTreeMap::new();
        for event in self.history.events_after(revision) {
            let key: &str = &event.entry.key;
            if key.starts_with(prefix) && after.is_none_or(|after| key > after) {
                undone.entry(key).or_insert(event.previous.as_ref());
            }
        }
        undone
    }

    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a str, &'a StoreEntry)> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.entries
            .range::<str, _>((start, Bound::Unbounded))
            .map(|(key, entry)| (&**key, entry))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Applies a durable batch and compacts the history.
    pub(super) fn publish(&mut self, batch: &WriteBatch, floor: u64) {
        for event in &batch.events {
            match event.kind {
                StoreEventKind::Put => {
                    let key = Arc::clone(&event.entry.key);
                    self.entries.insert(key, event.entry.clone());
                }
                StoreEventKind::Delete => {
                    self.entries.remove(&event.entry.key);
                }
            }
            self.history.push(Arc::clone(event));
        }
        self.revision = batch.revision;
        self.history.compact(floor);
    }
}

fn page<'a>(
    view: impl Iterator<Item = &'a StoreEntry>,
    limit: Option<usize>,
    revision: u64,
) -> StorePage {
    let mut view = view;
    let entries = view.by_ref().take(limit.unwrap_or(usize::MAX)).cloned().collect();
    StorePage { entries, revision, remaining: view.count() }
}

/// Merges two sequences in key order. For a key in both, `undone` has its old entry (`None`: it did
/// not exist).
fn merge<'a>(
    live: impl Iterator<Item = (&'a str, &'a StoreEntry)>,
    undone: impl Iterator<Item = (&'a &'a str, &'a Option<&'a StoreEntry>)>,
) -> impl Iterator<Item = &'a StoreEntry> {
    let mut live = live.peekable();
    let mut undone = undone.peekable();
    std::iter::from_fn(move || {
        loop {
            let Some(&(&old, &was)) = undone.peek() else {
                return live.next().map(|(_, entry)| entry);
            };
            if let Some((_, entry)) = live.next_if(|(key, _)| *key < old) {
                return Some(entry);
            }
            live.next_if(|(key, _)| *key == old);
            undone.next();
            if was.is_some() {
                return was;
            }
        }
    })
}

/// Transactions that become durable together, each checked against the state that it will see.
#[derive(Debug)]
pub(super) struct WriteBatch {
    /// The revision after the last one.
    pub(super) revision: u64,
    /// Their events, in order.
    pub(super) events: Vec<Arc<StoreEvent>>,
    /// The changed keys and their new entries; `None` if removed.
    pub(super) changed: HashMap<Arc<str>, Option<StoreEntry>>,
}

impl WriteBatch {
    pub(super) fn new(revision: u64) -> Self {
        Self { revision, events: Vec::new(), changed: HashMap::new() }
    }

    /// Adds a transaction, or nothing of it if a precondition fails.
    pub(super) fn add(
        &mut self,
        state: &StoreState,
        ops: &[StoreOp],
    ) -> Result<TransactionResult, CommitError> {
        let mut own = WriteBatch::new(self.revision + 1);
        let mut entries = Vec::with_capacity(ops.len());
        for (op, step) in ops.iter().enumerate() {
            let found = own.pending_entry(step.key()).or_else(|| self.pending_entry(step.key()));
            let found = found.unwrap_or_else(|| state.entries.get(step.key())).cloned();
            if !step.precondition().is_met(found.as_ref()) {
                return Err(CommitError::Conflict { op, found });
            }
            entries.push(own.apply(step, found));
        }
        if own.events.is_empty() {
            return Ok(TransactionResult { revision: self.revision, entries });
        }
        self.revision = own.revision;
        self.events.append(&mut own.events);
        self.changed.extend(own.changed);
        Ok(TransactionResult { revision: self.revision, entries })
    }

    /// Whether no entry is new or larger than before.
    pub(super) fn frees_space(&self) -> bool {
        self.events.iter().all(|event| {
            event.kind == StoreEventKind::Delete
                || !is_larger(&event.entry.value, event.previous.as_ref())
        })
    }

    /// The entry of a key after the batch.
    fn pending_entry(&self, key: &str) -> Option<Option<&StoreEntry>> {
        self.changed.get(key).map(Option::as_ref)
    }

    fn apply(&mut self, step: &StoreOp, previous: Option<StoreEntry>) -> Option<StoreEntry> {
        let revision = self.revision;
        match step {
            StoreOp::Put { key, value, .. } => {
                let entry = StoreEntry {
                    key: previous.as_ref().map_or_else(|| key.as_str().into(), |e| e.key.clone()),
                    value: value.clone(),
                    created: previous.as_ref().map_or(revision, |entry| entry.created),
                    revision,
                };
                self.changed.insert(entry.key.clone(), Some(entry.clone()));
                self.record(StoreEventKind::Put, entry.clone(), previous);
                Some(entry)
            }
            StoreOp::Delete { .. } => {
                let removed = previous?;
                self.changed.insert(removed.key.clone(), None);
                let last = StoreEntry { revision, ..removed.clone() };
                self.record(StoreEventKind::Delete, last, Some(removed.clone()));
                Some(removed)
            }
        }
    }

    fn record(&mut self, kind: StoreEventKind, entry: StoreEntry, previous: Option<StoreEntry>) {
        let event = StoreEvent { revision: self.revision, kind, entry, previous };
        self.events.push(Arc::new(event));
    }
}
