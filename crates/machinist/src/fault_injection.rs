//! Faults for tests: the process aborts at a chosen point between two changes of the disk.

/// The number of the point at which to abort, from 1. Only debug builds read it.
#[cfg(debug_assertions)]
const VARIABLE: &str = "MACHINIST_FAULT_POINT";

/// A point between two changes of the disk.
#[cfg(debug_assertions)]
pub(crate) fn point() {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static WANTED: LazyLock<Option<u64>> =
        LazyLock::new(|| std::env::var(VARIABLE).ok()?.parse().ok());
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let Some(wanted) = *WANTED else { return };
    if PASSED.fetch_add(1, Ordering::Relaxed) + 1 == wanted {
        std::process::abort();
    }
}

/// A point between two changes of the disk.
#[cfg(not(debug_assertions))]
pub(crate) fn point() {}
