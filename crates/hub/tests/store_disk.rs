//! The data directory: data survive a restart, and unusable data are rejected.
use std::path::Path;

use machinist_hub::store::{CommitError, Precondition, Store, StoreError, StoreOp, StoreOptions};

fn put(key: impl Into<String>, value: impl Into<Vec<u8>>) -> StoreOp {
    StoreOp::Put { key: key.into(), value: value.into().into(), expect: Precondition::Any }
}

fn open(dir: &Path) -> Result<Store, StoreError> {
    Store::open(dir, StoreOptions::default())
}

async fn fill(store: &Store, count: usize) {
    for n in 0..count {
        let value = vec![n as u8; 100 + n * 7 % 3000];
        store.commit(vec![put(format!("/k/{n:04}"), value)]).await.unwrap();
    }
}

#[tokio::test]
async fn data_survives_a_clean_close() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    assert_eq!(store.revision(), 1);
    fill(&store, 30).await;
    store
        .commit(vec![StoreOp::Delete { key: "/k/0003".into(), expect: Precondition::Any }])
        .await
        .unwrap();
    let (list, old) = (store.list("", None, None), store.list_at(20, "", None, None).unwrap());
    store.close().await;

    let store = open(dir.path()).unwrap();
    assert_eq!(store.list("", None, None), list);
    assert_eq!(store.list_at(20, "", None, None).unwrap(), old, "the history is kept too");
    let mut watch = store.watch("/k/0003", 1).unwrap();
    let (made, removed) = (watch.next().await.unwrap(), watch.next().await.unwrap());
    assert_eq!((made.revision, removed.revision), (5, 32));
    assert_eq!(removed.entry.value, made.entry.value, "a delete event has the last value");
    assert_eq!(store.commit(vec![put("x", "y")]).await.unwrap().revision, 33);
}

#[tokio::test]
async fn a_large_transaction_keeps_its_history() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    for round in 0..3u8 {
        let put = |n: usize| put(format!("/k/{n:03}"), vec![round; 3000 + n]);
        assert_eq!(store.commit((0..60).map(put).collect()).await.unwrap().entries.len(), 60);
    }
    let views: Vec<_> = (1..=4).map(|at| store.list_at(at, "", None, None).unwrap()).collect();
    drop(store);
    let store = open(dir.path()).unwrap();
    for view in views {
        assert_eq!(store.list_at(view.revision, "", None, None).unwrap(), view);
    }
    let mut watch = store.watch("/k/05", 2).unwrap();
    for n in 0..20 {
        let event = watch.next().await.unwrap();
        let key = format!("/k/{:03}", 50 + n % 10);
        assert_eq!((event.revision, &*event.entry.key), (3 + n / 10, &*key));
    }
}

#[tokio::test]
async fn closing_ends_watches_and_refuses_writes() {
    let store = Store::in_memory(StoreOptions::default());
    let other = store.clone();
    let mut watch = store.watch("", 1).unwrap();
    store.commit(vec![put("a", "1")]).await.unwrap();
    store.close().await;
    assert_eq!(watch.next().await.unwrap().revision, 2, "earlier events are returned");
    assert!(watch.next().await.is_err());
    let error = other.commit(vec![put("a", "2")]).await.unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
    assert_eq!(other.get("a").unwrap().value, "1", "reads still work");
    other.close().await;
}

#[tokio::test]
async fn a_crash_image_has_all_acknowledged_writes() {
    let (dir, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(dir.path()).unwrap();
    for round in 0..5 {
        fill(&store, 10 + round).await;
        for name in ["FORMAT", "store.redb"] {
            std::fs::copy(dir.path().join(name), image.path().join(name)).unwrap();
        }
        let copy = open(image.path()).unwrap();
        assert_eq!(copy.list("", None, None), store.list("", None, None));
        assert_eq!(copy.list_at(5, "", None, None), store.list_at(5, "", None, None));
    }
}

#[tokio::test]
async fn compaction_and_bounds_hold_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { history: 10, ..StoreOptions::default() };
    let store = Store::open(dir.path(), options).unwrap();
    fill(&store, 30).await;
    assert!(store.watch("", 20).is_err() && store.watch("", 21).is_ok());
    store.compact(25);
    assert!(store.watch("", 24).is_err() && store.watch("", 25).is_ok());
    store.close().await;
    let store = Store::open(dir.path(), options).unwrap();
    assert!(store.watch("", 24).is_err(), "compacted history stays compacted");
    assert_eq!(store.watch("", 25).unwrap().next().await.unwrap().revision, 26);
    store.compact(1000);
    assert!(store.watch("", 30).is_err() && store.watch("", 31).is_ok());
    drop(store);
    let smaller = StoreOptions { history: 2, ..options };
    assert_eq!(Store::open(dir.path(), smaller).unwrap().list("", None, None).entries.len(), 30);
}

#[test]
fn a_directory_has_one_user() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let error = open(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }));
    let text = error.to_string();
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    assert!(text.contains("stop it, or choose another"), "{text}");
    drop(store);
    open(dir.path()).unwrap();
}

#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    std::fs::write(dir.path().join("FORMAT"), "2\n").unwrap();
    let text = open(dir.path()).unwrap_err().to_string();
    assert!(text.contains("format 2") && text.contains("newer"), "{text}");
    std::fs::write(dir.path().join("FORMAT"), "what").unwrap();
    assert!(matches!(open(dir.path()), Err(StoreError::Corrupt { .. })));
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("new/data");
    drop(open(&data).unwrap());
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    for name in ["LOCK", "FORMAT", "REVISION", "store.redb"] {
        assert_eq!(mode(&data.join(name)), 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_foreign_data_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    fill(&store, 50).await;
    store.close().await;
    let path = dir.path().join("store.redb");
    let good = std::fs::read(&path).unwrap();
    let cut = good[..good.len() / 2].to_vec();
    for bad in [Vec::new(), b"hello".to_vec(), vec![0; 70_000], cut] {
        std::fs::write(&path, &bad).unwrap();
        let error = open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{} bytes: {error:?}", bad.len());
        assert!(error.to_string().contains("store.redb"), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    let error = open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("missing"), "a lost file is not an empty store: {error}");
}

/// Every byte of a closed file is either checked or unused.
#[tokio::test]
async fn flipped_bits_are_detected() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    fill(&store, 60).await;
    let expected = store.list("", None, None);
    store.close().await;
    let path = dir.path().join("store.redb");
    let good = std::fs::read(&path).unwrap();
    let mut refused = 0;
    let places = (0..100).map(|n| n * good.len() / 100 + n % 61).chain((0..320).step_by(5));
    for place in places {
        let mut bad = good.clone();
        bad[place] ^= 1 << (place % 8);
        std::fs::write(&path, &bad).unwrap();
        let opened = std::panic::catch_unwind(|| open(dir.path()));
        match opened.unwrap_or_else(|_| panic!("panic with byte {place} flipped")) {
            Ok(store) => assert_eq!(store.list("", None, None), expected, "byte {place}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 10, "only {refused} were detected");
}

/// Tries again while the directory is locked: a child process of another test holds a copy of the
/// lock between its fork and its exec.
fn when_unlocked<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    for _ in 0..100 {
        match attempt() {
            Err(StoreError::Locked { .. }) => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            done => return done,
        }
    }
    attempt()
}

/// 200 random flips anywhere in the data directory: each is refused with the name of the file, or it
/// hit unused space and everything is served as it was written. The offline check agrees.
#[tokio::test]
async fn no_flipped_byte_is_served() {
    let (dir, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = StoreOptions { reserve_bytes: 0, ..StoreOptions::default() };
    let store = Store::open(dir.path(), options).unwrap();
    fill(&store, 60).await;
    let served = |store: &Store| -> Vec<_> {
        (1..=61).map(|revision| store.list_at(revision, "", None, None).unwrap()).collect()
    };
    let expected = served(&store);
    store.close().await;
    let files = ["store.redb", "REVISION", "FORMAT"];
    let good = files.map(|name| std::fs::read(dir.path().join(name)).unwrap());
    let used: Vec<usize> = (0..good[0].len()).filter(|at| good[0][*at] != 0).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % limit as u64) as usize
    };
    let (mut refused, mut unharmed) = (0, 0);
    for round in 0..200 {
        for (name, bytes) in files.iter().zip(&good) {
            std::fs::write(work.path().join(name), bytes).unwrap();
        }
        // Half of the flips hit bytes that are in use; the markers are small, so they get a share.
        let (file, place) = match round % 20 {
            0 => (1, below(good[1].len())),
            1 => (2, below(good[2].len())),
            even if even % 2 == 0 => (0, used[below(used.len())]),
            _ => (0, below(good[0].len())),
        };
        let mut bad = good[file].clone();
        bad[place] ^= 1 << below(8);
        let path = work.path().join(files[file]);
        std::fs::write(&path, &bad).unwrap();
        let checked = when_unlocked(|| Store::verify(work.path()));
        assert!(std::fs::read(&path).unwrap() == bad, "a check changes nothing");
        let name = format!("{} byte {place}", files[file]);
        match when_unlocked(|| Store::open(work.path(), options)) {
            Ok(store) => {
                assert!(served(&store) == expected, "{name}: wrong data are served");
                assert!(checked.is_ok(), "{name}: {:?}", checked.err());
                unharmed += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains(files[file]), "{name}: {error}");
                assert!(checked.is_err(), "{name}: the check missed {error}");
                refused += 1;
            }
        }
    }
    println!("200 flips: {refused} refused, {unharmed} in unused space, 0 silent");
    // Pages that were replaced are unused, but still have their old bytes.
    assert!(refused >= 30, "{refused}");
}

#[tokio::test]
async fn a_stopped_store_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Store::verify(&dir.path().join("none")).unwrap_err();
    assert!(missing.to_string().contains("none") && !dir.path().join("none").exists());
    let store = open(dir.path()).unwrap();
    fill(&store, 30).await;
    let error = Store::verify(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    let entries = store.list("", None, None).entries;
    store.close().await;
    let found = Store::verify(dir.path()).unwrap();
    assert_eq!((found.revision, found.events), (31, 30));
    assert_eq!(found.entries, entries);
}

#[tokio::test]
async fn older_data_are_detected() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let path = dir.path().join("store.redb");
    fill(&store, 3).await;
    let old = std::fs::read(&path).unwrap();
    fill(&store, 3).await;
    store.close().await;
    std::fs::write(&path, old).unwrap();
    let text = open(dir.path()).unwrap_err().to_string();
    assert!(text.contains("revision 4, and was at 7") && text.contains("REVISION"), "{text}");
    std::fs::remove_file(dir.path().join("REVISION")).unwrap();
    assert_eq!(open(dir.path()).unwrap().revision(), 4);
}

#[tokio::test]
async fn a_value_that_is_too_large_is_refused() {
    let store = Store::in_memory(StoreOptions::default());
    let error = store.commit(vec![put("/big", vec![0; (64 << 20) + 1])]).await.unwrap_err();
    assert!(error.to_string().contains("/big"), "{error}");
    assert_eq!(store.revision(), 1);
}

/// Queued transactions are committed together, each with its own revision and result.
#[tokio::test]
async fn queued_transactions_commit_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let create = |n: usize| {
        let (key, value) = ("/one".to_owned(), n.to_string().into());
        let mine = put(format!("/mine/{n}"), n.to_string());
        store.commit(vec![mine, StoreOp::Put { key, value, expect: Precondition::Absent }])
    };
    let results = futures::future::join_all((0..100).map(create)).await;
    let won: Vec<_> = (0..100).filter(|n| results[*n].is_ok()).collect();
    assert_eq!(won.len(), 1, "only one can create it");
    assert_eq!(store.revision(), 2);
    assert_eq!(store.get("/one").unwrap().value, won[0].to_string());
    assert_eq!(
        store.list("/mine/", None, None).entries.len(),
        1,
        "failed transactions leave nothing"
    );
    for result in results.iter().filter(|result| result.is_err()) {
        let Err(CommitError::Conflict { op: 1, found: Some(found) }) = result else {
            panic!("{result:?}")
        };
        assert_eq!(found, &store.get("/one").unwrap());
    }
}
