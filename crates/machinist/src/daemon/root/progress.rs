//! How far the work on the disk has come, for whoever reports a disk that does not answer (`agent::stalled_disk`).
//! A process works on one root, so there is one count for all its threads.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use machinist_core::daemon::stall::DiskWork;
use parking_lot::Mutex;

/// How many pieces of work have begun and not ended.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
/// How many operations have begun.
static OPERATIONS: AtomicU64 = AtomicU64::new(0);
/// The path of the last operation.
static LAST_PATH: Mutex<String> = Mutex::new(String::new());

/// Work on the disk; it ends when this is dropped.
#[derive(Debug)]
pub(in super::super) struct WorkOnDisk(());

impl WorkOnDisk {
    /// Begins.
    pub(in super::super) fn begin() -> Self {
        UNDER_WAY.fetch_add(1, Ordering::Relaxed);
        OPERATIONS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for WorkOnDisk {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts an operation.
pub(super) fn count(path: &str) {
    OPERATIONS.fetch_add(1, Ordering::Relaxed);
    let mut last = LAST_PATH.lock();
    last.clear();
    last.push_str(path);
}

/// Counts a part of a longer operation.
pub(super) fn tick() {
    OPERATIONS.fetch_add(1, Ordering::Relaxed);
}

/// What is being done; nothing if no work is under way.
pub(in super::super) fn work_on_disk() -> Option<DiskWork> {
    let is_under_way = UNDER_WAY.load(Ordering::Relaxed) > 0;
    is_under_way.then(|| DiskWork {
        operations: OPERATIONS.load(Ordering::Relaxed),
        path: LAST_PATH.lock().clone(),
    })
}
