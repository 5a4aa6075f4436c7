//! Watches: no event is missed or repeated, and no watch is woken needlessly.
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use machinist_hub::store::{
    Precondition, RevisionError, Store, StoreEvent, StoreOp, StoreOptions, StoreWatch,
};

fn put(key: impl Into<String>, value: impl Into<Vec<u8>>) -> StoreOp {
    StoreOp::Put { key: key.into(), value: value.into().into(), expect: Precondition::Any }
}

fn delete(key: impl Into<String>) -> StoreOp {
    StoreOp::Delete { key: key.into(), expect: Precondition::Any }
}

/// Collects all events up to a revision. Other keys do not wake the watch, so it also polls.
async fn collect(mut watch: StoreWatch, until: u64) -> Vec<Arc<StoreEvent>> {
    let mut events = Vec::new();
    while watch.observed_revision() < until {
        let next = tokio::time::timeout(Duration::from_millis(20), watch.next()).await;
        if let Ok(event) = next {
            events.push(event.unwrap());
        }
    }
    events
}

async fn load(store: Store, writer: u64, rounds: u64) {
    for n in 0..rounds {
        let key = format!("/{}/{}", writer % 3, (writer * 7 + n) % 5);
        let pair = format!("/pair/{writer}");
        let ops = match n % 4 {
            3 => vec![delete(key), delete(format!("{pair}/a")), delete(format!("{pair}/b"))],
            _ => vec![
                put(key, n.to_string()),
                put(format!("{pair}/a"), n.to_string()),
                put(format!("{pair}/b"), n.to_string()),
            ],
        };
        store.commit(ops).await.unwrap();
    }
}

/// Lists show one revision and whole transactions.
async fn read(store: Store, stop: Arc<AtomicBool>) {
    let mut newest = 0;
    while !stop.load(Ordering::Relaxed) {
        let page = store.list("/pair/", None, None);
        assert!(page.revision >= newest && page.revision <= store.revision());
        newest = page.revision;
        let (pairs, rest) = page.entries.as_chunks::<2>();
        assert!(rest.is_empty(), "a partial pair");
        for [a, b] in pairs {
            assert_eq!((&a.value, a.revision), (&b.value, b.revision));
            assert!(a.revision <= page.revision);
        }
        let again = store.list_at(page.revision, "/pair/", None, None).unwrap();
        assert_eq!(again, page, "a list at a revision does not change");
        tokio::task::yield_now().await;
    }
}

async fn check_concurrent_watches(store: Store, rounds: u64) {
    let stop = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(read(store.clone(), Arc::clone(&stop)));
    let writers: Vec<_> =
        (0..8).map(|writer| tokio::spawn(load(store.clone(), writer, rounds))).collect();
    let last = store.revision() + 8 * rounds;
    let all = tokio::spawn(collect(store.watch("", 1).unwrap(), last));
    let mut watches = Vec::new();
    let mut round: u64 = 0;
    while writers.iter().any(|writer| !writer.is_finished()) {
        let prefix = ["/", "/0/", "/1/1", "/pair/3", "/pair/3/a", "/none", ""][round as usize % 7];
        let after = 1 + round * 13 % store.revision();
        let watch = store.watch(prefix, after).unwrap();
        watches.push((prefix, after, tokio::spawn(collect(watch, last))));
        round += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(store.revision(), last);
    stop.store(true, Ordering::Relaxed);
    reader.await.unwrap();
    let all = all.await.unwrap();
    assert!(all.is_sorted_by_key(|event| event.revision));
    assert_eq!(all.iter().filter(|event| event.entry.key.ends_with("/a")).count() as u64, last - 1);
    for (prefix, after, watch) in watches {
        let expected: Vec<_> = all
            .iter()
            .filter(|event| event.revision > after && event.entry.key.starts_with(prefix))
            .cloned()
            .collect();
        let found = tokio::time::timeout(Duration::from_secs(20), watch).await;
        assert_eq!(found.unwrap().unwrap(), expected, "{prefix} after {after}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_event_is_missed_or_repeated_in_memory() {
    check_concurrent_watches(Store::in_memory(StoreOptions::default()), 400).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_event_is_missed_or_repeated_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    check_concurrent_watches(Store::open(dir.path(), StoreOptions::default()).unwrap(), 40).await;
}

/// Counts its wake-ups.
#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll(watch: &mut StoreWatch, waker: &Waker) -> Poll<Result<Arc<StoreEvent>, RevisionError>> {
    pin!(watch.next()).poll(&mut Context::from_waker(waker))
}

#[tokio::test]
async fn a_change_wakes_only_matching_watches() {
    let store = Store::in_memory(StoreOptions::default());
    let counters: Vec<Arc<WakeCounter>> = (0..10_000).map(|_| Arc::default()).collect();
    let mut watches: Vec<StoreWatch> = (0..10_000)
        .map(|n| {
            let kind = if n % 2 == 0 { "nodes" } else { "configs" };
            store.watch(&format!("/{kind}/machine-{:05}/", n / 2), 1).unwrap()
        })
        .collect();
    for (watch, counter) in watches.iter_mut().zip(&counters) {
        assert!(poll(watch, &Arc::clone(counter).into()).is_pending());
    }
    let woken = || -> Vec<usize> {
        (0..10_000).filter(|n| counters[*n].0.swap(0, Ordering::SeqCst) > 0).collect()
    };
    store.commit(vec![put("/nodes/machine-00042/", "x")]).await.unwrap();
    assert_eq!(woken(), [84]);
    store.commit(vec![put("/configs/machine-00042/a", "x")]).await.unwrap();
    assert_eq!(woken(), [85]);
    store.commit(vec![put("/configs/", "x"), put("/x", "x")]).await.unwrap();
    assert_eq!(woken(), [0; 0]);
    assert_eq!(watches[84].try_next().unwrap().unwrap().revision, 2);
    assert_eq!(
        (
            watches[84].observed_revision(),
            watches[0].observed_revision(),
            watches[85].observed_revision()
        ),
        (4, 4, 2)
    );
    watches.truncate(84);
    store.commit(vec![put("/nodes/machine-00042/", "y")]).await.unwrap();
    assert_eq!(woken(), [0; 0], "dropped watches are not woken");
}

#[tokio::test]
async fn many_watches_of_one_prefix_come_and_go() {
    let store = Store::in_memory(StoreOptions::default());
    let mut watches: Vec<StoreWatch> = (0..100).map(|_| store.watch("/a", 1).unwrap()).collect();
    for n in [50, 50, 0, 97, 3, 50, 95] {
        watches.swap_remove(n);
        watches.push(store.watch("/a", 1).unwrap());
    }
    store.commit(vec![put("/a", "x")]).await.unwrap();
    for watch in &mut watches {
        assert_eq!(watch.try_next().unwrap().unwrap().revision, 2);
        assert!(watch.try_next().unwrap().is_none());
    }
}

#[tokio::test]
async fn only_a_slow_watch_falls_behind() {
    let store = Store::in_memory(StoreOptions { history: 10, ..StoreOptions::default() });
    let mut idle = store.watch("/idle", 1).unwrap();
    let mut slow = store.watch("/busy", 1).unwrap();
    for n in 0..50u32 {
        store.commit(vec![put("/busy", n.to_string())]).await.unwrap();
    }
    assert_eq!(idle.observed_revision(), 51);
    store.commit(vec![put("/idle", "x")]).await.unwrap();
    assert_eq!(idle.next().await.unwrap().revision, 52);
    let late = slow.next().await.unwrap_err();
    assert_eq!(late, RevisionError::Compacted { requested: 1, oldest: 42 });
    assert_eq!(slow.next().await.unwrap_err(), late, "the error is permanent");
    assert_eq!(slow.observed_revision(), 1);
}

#[tokio::test]
async fn observed_revision_waits_for_the_whole_transaction() {
    let store = Store::in_memory(StoreOptions::default());
    let mut watch = store.watch("/a", 1).unwrap();
    let ops = (0..7).map(|n| put(format!("/a/{n}"), "x")).collect();
    store.commit(ops).await.unwrap();
    store.commit(vec![put("/b", "x")]).await.unwrap();
    for _ in 0..7 {
        assert_eq!(watch.observed_revision(), 1);
        assert_eq!(watch.next().await.unwrap().revision, 2);
    }
    assert!(watch.try_next().unwrap().is_none());
    assert_eq!(watch.observed_revision(), 3, "it advances also when nothing matched");
}

#[tokio::test]
async fn next_is_cancel_safe() {
    let store = Store::in_memory(StoreOptions::default());
    let mut watch = store.watch("/a", 1).unwrap();
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for n in 0..200u32 {
                store.commit(vec![put("/a", n.to_string())]).await.unwrap();
                tokio::time::sleep(Duration::from_micros(300)).await;
            }
        }
    });
    let mut next = 2;
    while next <= 201 {
        let waited = tokio::time::timeout(Duration::from_micros(200), watch.next()).await;
        if let Ok(event) = waited {
            assert_eq!(event.unwrap().revision, next);
            next += 1;
        }
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn a_watch_from_a_future_revision_is_refused() {
    let store = Store::in_memory(StoreOptions::default());
    let error = store.watch("", 2).unwrap_err();
    assert_eq!(error, RevisionError::FutureRevision { requested: 2, current: 1 });
    assert!(store.watch("", 1).is_ok());
    assert!(matches!(store.watch("", 0), Err(RevisionError::Compacted { .. })));
}
