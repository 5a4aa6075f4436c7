//! Each change of the data directory fails once, in a session of writes and restarts: nothing that was acknowledged is
//! lost, nothing that failed is seen, and the store comes back by itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;

use super::data_file::FileControl;
use super::*;

const OPTIONS: StoreOptions =
    StoreOptions { history: 8, history_bytes: 1 << 20, reserve_bytes: 64 << 10 };
/// How long a client tries again: the store pauses for half a second after a failure.
const ATTEMPTS: u32 = 1500;
const PAUSE: Duration = Duration::from_millis(20);

/// What happens when a write has failed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AfterFailure {
    /// The client sends it again.
    Retry,
    /// The process ends, and the next one goes on.
    Restart,
}

/// The contents: value and revision of each key.
type Contents = BTreeMap<String, (Bytes, u64)>;

struct FaultSession {
    dir: tempfile::TempDir,
    control: FileControl,
    store: Option<Store>,
    acknowledged: Contents,
    revision: u64,
    failures: u32,
}

fn put(key: &str, size: usize) -> StoreOp {
    let value = Bytes::from(vec![size as u8; size]);
    StoreOp::Put { key: key.into(), value, expect: Precondition::Any }
}

fn delete(key: &str) -> StoreOp {
    StoreOp::Delete { key: key.into(), expect: Precondition::Any }
}

/// The session: small and large values, changes, deletes, several at once. `None` is a clean restart.
fn steps() -> Vec<Option<Vec<StoreOp>>> {
    vec![
        Some(vec![put("/a", 10)]),
        Some(vec![put("/b", 60_000), put("/c", 20)]),
        Some(vec![put("/a", 300), delete("/c")]),
        None,
        Some((0..20).map(|n| put(&format!("/many/{n}"), 2000 + n)).collect()),
        Some(vec![delete("/b")]),
        Some((0..20).step_by(2).map(|n| delete(&format!("/many/{n}"))).collect()),
        Some(vec![put("/a", 11)]),
        Some(vec![put("/z", 100_000)]),
    ]
}

fn after(contents: &Contents, ops: &[StoreOp], revision: u64) -> Contents {
    let mut contents = contents.clone();
    for op in ops {
        match op {
            StoreOp::Put { key, value, .. } => {
                contents.insert(key.clone(), (value.clone(), revision));
            }
            StoreOp::Delete { key, .. } => drop(contents.remove(key)),
        }
    }
    contents
}

fn contents(store: &Store) -> Contents {
    let entries = store.list("", None, None).entries.into_iter();
    entries.map(|entry| (entry.key.to_string(), (entry.value, entry.revision))).collect()
}

impl FaultSession {
    fn new(control: FileControl) -> Self {
        // In memory where there is such a directory: it is the errors that count here, not the disk.
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let dir = tempfile::tempdir_in(parent).unwrap();
        let acknowledged = Contents::new();
        Self { dir, control, store: None, acknowledged, revision: 1, failures: 0 }
    }

    /// Starts like the service manager does: again, if it fails.
    async fn open(&mut self) {
        for _ in 0..ATTEMPTS {
            match Store::open_with(&self.dir.path().join("data"), OPTIONS, self.control.clone()) {
                Ok(store) => {
                    self.store = Some(store);
                    return;
                }
                Err(error) => {
                    assert!(!matches!(error, StoreError::Corrupt { .. }), "{error}");
                    self.failures += 1;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        panic!("the store does not start again");
    }

    async fn restart(&mut self) {
        if let Some(store) = self.store.take() {
            store.close().await;
        }
        self.control = self.control.for_next_process();
        self.open().await;
    }

    async fn write(&mut self, ops: &[StoreOp], mode: AfterFailure) {
        for _ in 0..ATTEMPTS {
            let store = self.store.clone().unwrap();
            match store.commit(ops.to_vec()).await {
                Ok(done) => {
                    self.revision = done.revision;
                    self.acknowledged = after(&self.acknowledged, ops, done.revision);
                    assert_eq!(contents(&store), self.acknowledged);
                    return;
                }
                Err(_) => self.failures += 1,
            }
            assert_eq!(contents(&store), self.acknowledged, "what failed is not seen");
            assert_eq!(store.revision(), self.revision);
            drop(store);
            if mode == AfterFailure::Restart {
                self.restart().await;
                let (found, store) = (contents(self.store.as_ref().unwrap()), &self.store);
                let revision = store.as_ref().unwrap().revision();
                // It may have reached the disk all the same. Then the client's next attempt is one more write.
                if found != self.acknowledged {
                    assert_eq!(found, after(&self.acknowledged, ops, revision), "half a write");
                    (self.acknowledged, self.revision) = (found, revision);
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("the store does not accept writes again");
    }
}

/// Returns how many changes there were, and how many calls failed.
async fn session(number: u64, errno: i32, mode: AfterFailure) -> (u64, u32) {
    let control = FileControl::default();
    control.fail_change(number, errno);
    let mut session = FaultSession::new(control);
    session.open().await;
    for step in steps() {
        match step {
            Some(ops) => session.write(&ops, mode).await,
            None => session.restart().await,
        }
        let store = session.store.as_ref().unwrap();
        assert_eq!(contents(store), session.acknowledged, "change {number} {errno} {mode:?}");
    }
    session.restart().await;
    let store = session.store.take().unwrap();
    assert_eq!(contents(&store), session.acknowledged, "change {number} {errno} {mode:?}");
    assert_eq!(store.revision(), session.revision, "change {number} {errno} {mode:?}");
    (session.control.changes(), session.failures)
}

#[tokio::test]
async fn each_change_of_the_data_directory_may_fail_once() {
    const DISK_FULL: i32 = 28;
    const INPUT_OUTPUT: i32 = 5;
    let (changes, failures) = session(0, 0, AfterFailure::Retry).await;
    assert_eq!(failures, 0);
    let cases = (1..=changes).flat_map(|number| {
        [
            (number, DISK_FULL, AfterFailure::Retry),
            (number, INPUT_OUTPUT, AfterFailure::Retry),
            (number, INPUT_OUTPUT, AfterFailure::Restart),
        ]
    });
    // At the same time, because they mostly wait for the store's next attempt.
    let results = futures::stream::iter(cases)
        .map(|(number, errno, mode)| async move { session(number, errno, mode).await.1 });
    let failures: Vec<u32> = results.buffer_unordered(32).collect().await;
    let seen = failures.iter().filter(|failures| **failures > 0).count();
    println!("{changes} changes, {} sessions; a client saw an error in {seen}", failures.len());
    assert!(changes > 80 && seen > failures.len() / 2, "{changes} {seen}");
}
