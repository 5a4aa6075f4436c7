//! Space on the disk that is kept for deletes and restarts.
//!
//! A delete writes too, and so does a start. On a full disk both would fail, and nobody could make
//! space through the API. The file RESERVE is allocated while there is space and given up when the
//! disk is full; from then on only changes that free space are accepted.

use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::data_dir::open_private;
use super::data_file::FileControl;
use crate::failure_log::FailureLog;

/// The name of the file.
const RESERVE_FILE: &str = "RESERVE";

/// The reserve of a data directory.
#[derive(Debug)]
pub(super) struct DiskReserve {
    dir: PathBuf,
    /// Its size; 0 for none.
    bytes: u64,
    control: FileControl,
    /// A log of its own: a hub without a reserve works, so this is no failure of the process.
    failures: FailureLog,
}

impl DiskReserve {
    pub(super) fn new(dir: &Path, bytes: u64, control: FileControl) -> Self {
        Self { dir: dir.to_owned(), bytes, control, failures: FailureLog::default().lasting() }
    }

    /// Whether there is so little space that only changes which free some may be written. `was_low`
    /// keeps the answer from flapping. `reusable` returns the space that the data file has on the
    /// disk and does not use; it is called only if the disk has little.
    pub(super) fn is_low(&self, was_low: bool, reusable: impl FnOnce() -> u64) -> bool {
        let Some(free) = free_bytes(&self.dir).filter(|_| self.bytes > 0) else { return false };
        let held = self.held_bytes() == self.bytes;
        if !held {
            self.hold();
        }
        free < self.bytes.saturating_mul(2)
            && is_low(free.saturating_add(reusable()), self.bytes, was_low || !held)
    }

    /// Gives up the reserved space. Returns whether there was any.
    pub(super) fn release(&self) -> bool {
        std::fs::remove_file(self.path()).is_ok()
    }

    fn path(&self) -> PathBuf {
        self.dir.join(RESERVE_FILE)
    }

    fn held_bytes(&self) -> u64 {
        std::fs::metadata(self.path()).map_or(0, |file| file.len())
    }

    /// Reserves as much as there is: a part of the reserve still lets a few deletes through.
    pub(super) fn hold(&self) {
        let free = free_bytes(&self.dir).unwrap_or(0);
        let bytes = self.bytes.min(free.saturating_add(self.held_bytes()));
        if bytes <= self.held_bytes() {
            return;
        }
        let allocate = || -> std::io::Result<()> {
            self.control.before_change()?;
            let file = open_private(&self.path())?;
            self.control.before_change()?;
            fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
            file.set_len(bytes)?;
            file.sync_all()
        };
        let allocated = allocate();
        if allocated.is_err() {
            let _ = self.release(); // a part of it is of no use
        }
        // Not every file system can allocate; the check of the free space still works.
        let path = self.path().display().to_string();
        self.failures.record("reserve disk space", &path, allocated);
    }
}

/// The free space for this process; `None` if the file system does not say.
fn free_bytes(dir: &Path) -> Option<u64> {
    let stat = statvfs(dir).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Low begins below one reserve of space. It ends when there is twice as much.
fn is_low(free: u64, reserve: u64, needs_reserve: bool) -> bool {
    free < if needs_reserve { reserve.saturating_mul(2) } else { reserve }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_space_has_hysteresis() {
        for (free, was_low, expected) in [
            (0, false, true),
            (99, false, true),
            (100, false, false),
            (150, true, true),
            (200, true, false),
        ] {
            assert_eq!(is_low(free, 100, was_low), expected, "{free} {was_low}");
        }
    }

    #[test]
    fn the_reserve_is_allocated_and_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = DiskReserve::new(dir.path(), 1 << 20, FileControl::default());
        assert!(!reserve.is_low(false, || 0));
        assert_eq!(reserve.held_bytes(), 1 << 20);
        assert!(reserve.release() && reserve.held_bytes() == 0);
        assert!(!reserve.release());
        assert!(!DiskReserve::new(dir.path(), 0, FileControl::default()).is_low(false, || 0));
        assert_eq!(reserve.held_bytes(), 0, "a reserve of 0 is no file");
    }
}
