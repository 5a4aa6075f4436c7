//! Backups: consistent during writes, verified before use.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use machinist_hub::store::{Precondition, Store, StoreError, StoreOp, StoreOptions};

fn put(key: &str, value: String) -> StoreOp {
    StoreOp::Put { key: key.into(), value: value.into(), expect: Precondition::Any }
}

async fn backup(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    let info = store.backup(&mut bytes).await.unwrap();
    assert_eq!(info.bytes, bytes.len() as u64);
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_while_writing_is_consistent() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("data"), StoreOptions::default()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, stop) = (store.clone(), Arc::clone(&stop));
        async move {
            for n in 0.. {
                let pair = vec![put("/a", n.to_string()), put("/b", n.to_string())];
                store.commit(pair).await.unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    });
    let mut newest = store.revision();
    for round in 0..5 {
        let (file, data) =
            (dir.path().join(format!("b{round}")), dir.path().join(format!("{round}")));
        while store.revision() <= newest + 1 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let info = store.backup_file(&file).await.unwrap();
        assert!(info.revision > newest);
        newest = info.revision;
        Store::restore(&file, &data).unwrap();
        let restored = Store::open(&data, StoreOptions::default()).unwrap();
        let (a, b) = (restored.get("/a").unwrap(), restored.get("/b").unwrap());
        assert_eq!(a.value, b.value, "transactions are complete");
        assert_eq!((a.revision, b.revision), (restored.revision(), restored.revision()));
    }
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
}

#[tokio::test]
async fn a_restored_store_starts_above_all_known_revisions() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::in_memory(StoreOptions::default());
    store.commit(vec![put("/a", "1".into())]).await.unwrap();
    let (file, data) = (dir.path().join("backup"), dir.path().join("data"));
    let saved = store.list("", None, None);
    store.backup_file(&file).await.unwrap();
    for n in 0..10 {
        store.commit(vec![put("/a", n.to_string())]).await.unwrap();
    }
    let known = store.revision();

    Store::restore(&file, &data).unwrap();
    let restored = Store::open(&data, StoreOptions::default()).unwrap();
    let (found, saved) = (&restored.list("", None, None).entries[0], &saved.entries[0]);
    assert_eq!(
        (&found.key, &found.value, found.created),
        (&saved.key, &saved.value, saved.created)
    );
    assert!(found.revision > known, "a client that knows a later state takes this one for newer");
    assert!(restored.revision() > known);
    assert!(restored.watch("", known).is_err(), "clients with later revisions must list again");
    let watch = restored.watch("", restored.revision());
    let committed = restored.commit(vec![put("/a", "2".into())]).await.unwrap();
    assert_eq!(watch.unwrap().next().await.unwrap().revision, committed.revision);
    drop(restored);
    assert!(Store::open(&data, StoreOptions::default()).unwrap().revision() >= committed.revision);
}

#[tokio::test]
async fn a_damaged_backup_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::in_memory(StoreOptions::default());
    for n in 0..20 {
        store.commit(vec![put(&format!("/k{n}"), "x".repeat(n))]).await.unwrap();
    }
    let good = backup(&store).await;
    let (file, data) = (dir.path().join("backup"), dir.path().join("data"));
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 0x10;
        std::fs::write(&file, &bad).unwrap();
        let error = Store::restore(&file, &data).unwrap_err();
        assert!(error.to_string().contains("backup"), "{error}");
    }
    for length in [0, 10, 16, 19, 40, good.len() - 1] {
        std::fs::write(&file, &good[..length]).unwrap();
        assert!(matches!(Store::restore(&file, &data), Err(StoreError::Corrupt { .. })));
    }
    let newer = [&good[..16], &7u32.to_le_bytes(), &good[20..]].concat();
    std::fs::write(&file, newer).unwrap();
    let text = Store::restore(&file, &data).unwrap_err().to_string();
    assert!(text.contains("format 7"), "{text}");
    assert!(!data.exists());
    std::fs::write(&file, &good).unwrap();
    Store::restore(&file, &data).unwrap();
}

#[tokio::test]
async fn only_a_fresh_directory_is_restored_into() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("old"), StoreOptions::default()).unwrap();
    let (file, data) = (dir.path().join("backup"), dir.path().join("data"));
    store.backup_file(&file).await.unwrap();
    let error = Store::restore(&file, &dir.path().join("old")).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    drop(store);
    let error = Store::restore(&file, &dir.path().join("old")).unwrap_err();
    assert!(matches!(error, StoreError::NotEmpty { .. }), "{error}");
    // The remains of an interrupted restore are ignored.
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("store.redb.new"), "half").unwrap();
    Store::restore(&file, &data).unwrap();
    Store::restore(&file, &data).unwrap_err();
}

#[tokio::test]
async fn a_backup_that_cannot_be_written_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::in_memory(StoreOptions::default());
    let target = dir.path().join("is-a-directory");
    std::fs::create_dir(&target).unwrap();
    let error = store.backup_file(&target).await.unwrap_err();
    assert!(error.to_string().contains("is-a-directory"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
