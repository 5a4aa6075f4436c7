//! Disk failures and inconsistent data files.

use std::os::unix::fs::MetadataExt;

use super::data_file::{DiskFault, FileControl};
use super::disk::{DataFileContents, DiskStorage, build_data_file};
use super::*;

fn put(key: &str, value: &'static str) -> Vec<StoreOp> {
    vec![StoreOp::Put { key: key.into(), value: value.into(), expect: Precondition::Any }]
}

fn error_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

async fn recovers_from(fault: DiskFault, cause: &str, same_file: bool) {
    let dir = tempfile::tempdir().unwrap();
    let inode = || std::fs::metadata(dir.path().join("store.redb")).unwrap().ino();
    let control = FileControl::default();
    let store = Store::open_with(dir.path(), StoreOptions::default(), control.clone()).unwrap();
    store.commit(put("a", "1")).await.unwrap();
    let mut watch = store.watch("", 1).unwrap();
    assert_eq!(watch.next().await.unwrap().revision, 2);

    let file = inode();
    control.inject_fault(fault);
    for _ in 0..2 {
        let error = store.commit(put("a", "lost")).await.unwrap_err();
        let CommitError::Store(error @ StoreError::Write { .. }) = error else { panic!("{error}") };
        let text = error_text(&error);
        assert!(text.contains("store.redb") && text.contains(cause), "{text}");
        assert!(!store.is_writable());
    }
    // Detecting a conflict needs no disk.
    let impossible = vec![StoreOp::Delete { key: "b".into(), expect: Precondition::Present }];
    assert!(matches!(store.commit(impossible).await, Err(CommitError::Conflict { .. })));
    assert_eq!(store.get("a").unwrap().value, "1", "reads return what was acknowledged");
    assert_eq!((store.revision(), watch.observed_revision()), (2, 2));
    assert!(watch.try_next().unwrap().is_none(), "failed transactions are invisible");

    control.resume();
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    assert_eq!(store.commit(put("a", "2")).await.unwrap().revision, 3);
    assert!(store.is_writable());
    assert_eq!(inode() == file, same_file, "a file whose sync failed is not trusted again");
    assert_eq!(watch.next().await.unwrap().entry.value, "2");
    store.commit(put("c", "3")).await.unwrap();
    drop(store);

    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!(store.revision(), 4);
    assert_eq!(store.get("a").unwrap().value, "2");
    let mut watch = store.watch("", 1).unwrap();
    for (revision, value) in [(2, "1"), (3, "2"), (4, "3")] {
        let event = watch.next().await.unwrap();
        assert_eq!((event.revision, &event.entry.value[..]), (revision, value.as_bytes()));
    }
}

#[tokio::test]
async fn a_full_disk_fails_writes_until_there_is_space() {
    recovers_from(DiskFault::DiskFull, "No space left", true).await;
}

#[tokio::test]
async fn a_failed_sync_is_not_forgotten() {
    recovers_from(DiskFault::SyncFails, "Input/output error", false).await;
}

#[tokio::test]
async fn what_was_acknowledged_before_a_disk_error_survives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let control = FileControl::default();
    let store = Store::open_with(dir.path(), StoreOptions::default(), control.clone()).unwrap();
    for n in 0..50 {
        store.commit(put(&format!("k{n}"), "1")).await.unwrap();
    }
    control.inject_fault(DiskFault::SyncFails);
    store.commit(put("k0", "maybe")).await.unwrap_err();
    drop(store);
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!(store.list("", None, None).entries.len(), 50);
    assert!(store.revision() >= 51);
}

#[test]
fn an_interrupted_first_start_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path(), StoreOptions::default()).unwrap());
    std::fs::remove_file(dir.path().join("FORMAT")).unwrap();
    drop(Store::open(dir.path(), StoreOptions::default()).unwrap());
    assert!(dir.path().join("FORMAT").exists());
}

#[test]
fn an_unknown_format_inside_the_data_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path(), StoreOptions::default()).unwrap());
    {
        let database = redb::Database::open(dir.path().join("store.redb")).unwrap();
        let write = database.begin_write().unwrap();
        let meta = redb::TableDefinition::<&str, u64>::new("meta");
        write.open_table(meta).unwrap().insert("format", 2).unwrap();
        write.commit().unwrap();
    }
    let error = Store::open(dir.path(), StoreOptions::default()).unwrap_err();
    assert!(matches!(&error, StoreError::Format { found, .. } if found == "2"), "{error}");
}

#[test]
fn history_that_contradicts_the_entries_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    {
        let data = data_dir::DataDir::lock(dir.path(), FileControl::default()).unwrap();
        let entry = StoreEntry { key: "a".into(), value: "x".into(), created: 2, revision: 2 };
        let event = StoreEvent { revision: 2, kind: StoreEventKind::Put, entry, previous: None };
        let events = [Arc::new(event)];
        let none: [StoreEntry; 0] = [];
        let contents = DataFileContents {
            revision: 2,
            floor: 1,
            entries: none.iter().map(Ok),
            history: events.iter(),
        };
        build_data_file(&data, &FileControl::default(), contents).unwrap();
        data.write_format().unwrap();
    }
    let error =
        DiskStorage::open(dir.path(), StoreOptions::default(), FileControl::default()).unwrap_err();
    assert!(error.to_string().contains("do not agree"), "{error}");
}

/// Every machine renews its lease every ten seconds: the renewals of a fleet must not cost a sync each, nor more history
/// than anything else.
#[tokio::test]
async fn renewals_of_leases_share_syncs_and_the_history_stays_bounded() {
    const MACHINES: u64 = 5000;
    const HISTORY: usize = 1000;
    let dir = tempfile::tempdir().unwrap();
    let control = FileControl::default();
    let options = StoreOptions { history: HISTORY, ..StoreOptions::default() };
    let store = Store::open_with(dir.path(), options, control.clone()).unwrap();
    for value in ["first", "second"] {
        let before = control.syncs();
        let renewals =
            (0..MACHINES).map(|machine| store.commit(put(&format!("/leases/{machine}"), value)));
        for renewed in futures::future::join_all(renewals).await {
            renewed.unwrap();
        }
        let syncs = control.syncs() - before;
        assert!(syncs <= MACHINES / 50, "{syncs} syncs for {MACHINES} leases");
    }
    let revision = store.revision();
    assert_eq!(revision, 2 * MACHINES + 1);
    let oldest = revision - HISTORY as u64;
    assert!(store.watch("", oldest - 1).is_err());
    let mut watch = store.watch("/leases/", oldest).unwrap();
    let mut events = 0;
    while watch.try_next().unwrap().is_some() {
        events += 1;
    }
    assert_eq!(events, HISTORY);
}
