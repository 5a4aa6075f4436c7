//! The store against a model: a plain map that applies the same operations and records every
//! revision.
use std::collections::BTreeMap;

use machinist_hub::store::{
    CommitError, Precondition, RevisionError, Store, StoreEntry, StoreEvent, StoreEventKind,
    StoreOp, StoreOptions, TransactionResult,
};
use proptest::prelude::*;

const KEYS: [&str; 7] = ["", "/a", "/a/1", "/a/10", "/a/2", "/b/1", "/é"];
const PREFIXES: [&str; 6] = ["", "/", "/a", "/a/1", "/b/", "/zz"];

/// A precondition in terms that fit any state.
#[derive(Clone, Debug)]
enum ModelPrecondition {
    Any,
    Absent,
    Present,
    Current,
    Stale,
}

#[derive(Clone, Debug)]
enum ModelStep {
    Commit(Vec<(usize, Option<u8>, ModelPrecondition)>),
    Compact(u8),
    Reopen,
}

fn any_step() -> impl Strategy<Value = ModelStep> {
    let wish = prop_oneof![
        6 => Just(ModelPrecondition::Any),
        1 => Just(ModelPrecondition::Absent),
        1 => Just(ModelPrecondition::Present),
        2 => Just(ModelPrecondition::Current),
        1 => Just(ModelPrecondition::Stale),
    ];
    let op = (0..KEYS.len(), proptest::option::weighted(0.7, any::<u8>()), wish);
    prop_oneof![
        12 => proptest::collection::vec(op, 0..4).prop_map(ModelStep::Commit),
        1 => any::<u8>().prop_map(ModelStep::Compact),
        1 => Just(ModelStep::Reopen),
    ]
}

type ModelState = BTreeMap<String, StoreEntry>;

struct StoreModel {
    now: ModelState,
    revision: u64,
    /// The state at each revision, from 1 on.
    past: Vec<ModelState>,
    events: Vec<StoreEvent>,
    compacted: u64,
}

impl StoreModel {
    fn new() -> Self {
        let past = vec![ModelState::new(), ModelState::new()];
        Self { now: ModelState::new(), revision: 1, past, events: Vec::new(), compacted: 1 }
    }

    fn ops(&self, steps: &[(usize, Option<u8>, ModelPrecondition)]) -> Vec<StoreOp> {
        let op = |(key, value, wish): &(usize, Option<u8>, ModelPrecondition)| {
            let key = KEYS[*key].to_owned();
            let current = self.now.get(&key).map_or(u64::MAX, |entry| entry.revision);
            let expect = match wish {
                ModelPrecondition::Any => Precondition::Any,
                ModelPrecondition::Absent => Precondition::Absent,
                ModelPrecondition::Present => Precondition::Present,
                ModelPrecondition::Current => Precondition::Revision(current),
                ModelPrecondition::Stale => Precondition::Revision(current - 1),
            };
            match value {
                Some(value) => StoreOp::Put { key, value: vec![*value; 3].into(), expect },
                None => StoreOp::Delete { key, expect },
            }
        };
        steps.iter().map(op).collect()
    }

    /// Applies a transaction to the model and returns the expected result.
    fn commit(
        &mut self,
        ops: &[StoreOp],
    ) -> Result<TransactionResult, (usize, Option<StoreEntry>)> {
        let (mut now, revision) = (self.now.clone(), self.revision + 1);
        let (mut entries, mut events) = (Vec::new(), Vec::new());
        for (index, op) in ops.iter().enumerate() {
            let (StoreOp::Put { key, expect, .. } | StoreOp::Delete { key, expect }) = op;
            let found = now.get(key).cloned();
            let holds = match expect {
                Precondition::Any => true,
                Precondition::Absent => found.is_none(),
                Precondition::Present => found.is_some(),
                Precondition::Revision(at) => {
                    found.as_ref().map(|entry| entry.revision) == Some(*at)
                }
            };
            if !holds {
                return Err((index, found));
            }
            let (kind, entry) = match (op, found.clone()) {
                (StoreOp::Put { value, .. }, found) => {
                    let created = found.map_or(revision, |entry| entry.created);
                    let key: std::sync::Arc<str> = key.as_str().into();
                    let entry = StoreEntry { key, value: value.clone(), created, revision };
                    now.insert(entry.key.to_string(), entry.clone());
                    entries.push(Some(entry.clone()));
                    (StoreEventKind::Put, entry)
                }
                (StoreOp::Delete { .. }, Some(entry)) => {
                    now.remove(key);
                    entries.push(Some(entry.clone()));
                    (StoreEventKind::Delete, StoreEntry { revision, ..entry })
                }
                (StoreOp::Delete { .. }, None) => {
                    entries.push(None);
                    continue;
                }
            };
            events.push(StoreEvent { revision, kind, entry, previous: found });
        }
        if !events.is_empty() {
            self.revision = revision;
            self.now = now;
            self.past.push(self.now.clone());
            self.events.append(&mut events);
        }
        Ok(TransactionResult { revision: self.revision, entries })
    }

    fn events_after(&self, revision: u64) -> usize {
        self.events.iter().filter(|event| event.revision > revision).count()
    }
}

/// Checks the oldest served revision: the store must keep as much as its limits allow, and no more.
fn check_oldest_revision(store: &Store, model: &StoreModel, history: usize) -> u64 {
    let oldest = match store.watch("", 0) {
        Err(RevisionError::Compacted { requested: 0, oldest }) => oldest,
        other => panic!("{other:?}"),
    };
    assert!(oldest >= model.compacted && model.events_after(oldest) <= history);
    let more = model.events_after(oldest - 1);
    assert!(oldest == model.compacted || more > history, "{more} events would fit too");
    oldest
}

fn check_lists(store: &Store, model: &StoreModel, oldest: u64) {
    for revision in 0..=model.revision + 1 {
        for (prefix, after) in PREFIXES.iter().flat_map(|p| KEYS.map(|k| (*p, Some(k)))) {
            let after = after.filter(|after| !after.is_empty());
            let page = store.list_at(revision, prefix, after, Some(2));
            if revision < oldest {
                assert_eq!(page, Err(RevisionError::Compacted { requested: revision, oldest }));
                continue;
            }
            if revision > model.revision {
                assert!(matches!(page, Err(RevisionError::FutureRevision { .. })));
                continue;
            }
            let page = page.unwrap();
            let mut expected: Vec<&StoreEntry> = model.past[revision as usize]
                .values()
                .filter(|e| e.key.starts_with(prefix) && after.is_none_or(|after| &*e.key > after))
                .collect();
            assert_eq!(page.remaining, expected.len().saturating_sub(2));
            expected.truncate(2);
            assert_eq!(page.entries.iter().collect::<Vec<_>>(), expected);
            assert_eq!(page.revision, revision);
            if revision == model.revision {
                assert_eq!(store.list(prefix, after, Some(2)), page);
            }
        }
    }
    for key in KEYS {
        assert_eq!(store.get(key).as_ref(), model.now.get(key));
    }
}

fn check_watches(store: &Store, model: &StoreModel, oldest: u64) {
    for (after, prefix) in (oldest..=model.revision).flat_map(|r| PREFIXES.map(|p| (r, p))) {
        let mut watch = store.watch(prefix, after).unwrap();
        let mut expected = model
            .events
            .iter()
            .filter(|event| event.revision > after && event.entry.key.starts_with(prefix));
        while let Some(event) = watch.try_next().unwrap() {
            assert_eq!(Some(&*event), expected.next());
        }
        assert_eq!(expected.next(), None, "missed");
        assert_eq!(watch.observed_revision(), model.revision);
    }
}

fn run(steps: Vec<ModelStep>, history: usize, disk: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { history, ..StoreOptions::default() };
    let open = || match disk {
        true => Store::open(dir.path(), options).unwrap(),
        false => Store::in_memory(options),
    };
    let mut store = open();
    let mut model = StoreModel::new();
    let mut live = store.watch("/a", 1).unwrap();
    let mut received = Vec::new();
    for step in steps {
        match step {
            ModelStep::Commit(steps) => {
                let ops = model.ops(&steps);
                let expected = model.commit(&ops);
                let found = runtime.block_on(store.commit(ops)).map_err(|error| match error {
                    CommitError::Conflict { op, found } => (op, found),
                    error => panic!("{error}"),
                });
                assert_eq!(found, expected);
                while let Some(event) = live.try_next().unwrap() {
                    received.push((*event).clone());
                }
            }
            ModelStep::Compact(part) => {
                let before = model.revision * u64::from(part) / 200;
                store.compact(before);
                model.compacted = model.compacted.max(before.min(model.revision));
            }
            ModelStep::Reopen if disk => {
                drop(store);
                store = open();
                live = store.watch("/a", live.observed_revision()).unwrap();
            }
            ModelStep::Reopen => {}
        }
        assert_eq!(store.revision(), model.revision);
        assert_eq!(live.observed_revision(), model.revision);
    }
    let oldest = check_oldest_revision(&store, &model, history);
    check_lists(&store, &model, oldest);
    check_watches(&store, &model, oldest);
    let expected: Vec<_> =
        model.events.into_iter().filter(|event| event.entry.key.starts_with("/a")).collect();
    assert_eq!(received, expected, "a watch that was open all the time");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn memory_store_matches_the_model(
        steps in proptest::collection::vec(any_step(), 0..40),
        history in prop_oneof![Just(1000usize), 3usize..20],
    ) {
        run(steps, history, false);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn disk_store_matches_the_model(
        steps in proptest::collection::vec(any_step(), 0..30),
        history in prop_oneof![Just(1000usize), 3usize..20],
    ) {
        run(steps, history, true);
    }
}
