//! The data file as redb sees it. It can be sealed against further writes.
//!
//! At a clean shutdown redb writes its allocator state, which it trusts unchecked at the next
//! start: a flipped bit in it makes redb panic. The file is therefore sealed before it is closed.
//! Every start is then a recovery, in which redb verifies the checksum of every page.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
#[cfg(test)]
use std::sync::atomic::{AtomicI32, AtomicU64};

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::data_dir::open_private;

const SEALED: u8 = 1;

/// Controls the file and reports failed syncs. A clone controls the same file. Tests let any change of the data
/// directory fail with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileControl(Arc<FileControlState>);

#[derive(Debug, Default)]
struct FileControlState {
    mode: AtomicU8,
    sync_failed: AtomicBool,
    #[cfg(test)]
    changes: AtomicU64,
    #[cfg(test)]
    syncs: AtomicU64,
    #[cfg(test)]
    failing_change: AtomicU64,
    #[cfg(test)]
    errno: AtomicI32,
}

impl FileControl {
    /// Called before each change of a file or a directory; fails if a test wants this one to fail.
    #[cfg_attr(not(test), expect(clippy::unused_self, clippy::unnecessary_wraps))]
    pub(super) fn before_change(&self) -> io::Result<()> {
        #[cfg(test)]
        if self.0.changes.fetch_add(1, Ordering::SeqCst) + 1
            == self.0.failing_change.load(Ordering::SeqCst)
        {
            return Err(io::Error::from_raw_os_error(self.0.errno.load(Ordering::SeqCst)));
        }
        Ok(())
    }

    /// Lets one change fail: the first is number 1.
    #[cfg(test)]
    pub(crate) fn fail_change(&self, number: u64, errno: i32) {
        self.0.errno.store(errno, Ordering::SeqCst);
        self.0.failing_change.store(number, Ordering::SeqCst);
    }

    /// The same counts, for the process that opens the data after this one has closed them.
    #[cfg(test)]
    pub(crate) fn for_next_process(&self) -> Self {
        let next = Self::default();
        next.0.changes.store(self.changes(), Ordering::SeqCst);
        let failing = self.0.failing_change.load(Ordering::SeqCst);
        next.fail_change(failing, self.0.errno.load(Ordering::SeqCst));
        next
    }

    /// How many changes there were.
    #[cfg(test)]
    pub(crate) fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::SeqCst)
    }

    /// How often the file was synced.
    #[cfg(test)]
    pub(super) fn syncs(&self) -> u64 {
        self.0.syncs.load(Ordering::SeqCst)
    }

    /// Rejects all further writes.
    pub(super) fn seal(&self) {
        self.0.mode.store(SEALED, Ordering::SeqCst);
    }

    /// Whether a sync has failed. The page cache may then hold data that the disk does not.
    pub(super) fn sync_failed(&self) -> bool {
        self.0.sync_failed.load(Ordering::SeqCst)
    }

    /// The file was replaced by one without a failed sync.
    pub(super) fn clear_sync_failure(&self) {
        self.0.sync_failed.store(false, Ordering::SeqCst);
    }

    /// Ends an injected fault.
    #[cfg(test)]
    pub(super) fn resume(&self) {
        self.0.mode.store(0, Ordering::SeqCst);
    }

    /// Injects a disk fault.
    #[cfg(test)]
    pub(super) fn inject_fault(&self, fault: DiskFault) {
        self.0.mode.store(fault as u8, Ordering::SeqCst);
    }
}

/// A disk fault.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) enum DiskFault {
    /// The disk is full.
    DiskFull = 2,
    /// Writes succeed, but syncs fail.
    SyncFails = 3,
}

/// A file with its control.
#[derive(Debug)]
pub(super) struct DataFile {
    file: FileBackend,
    control: FileControl,
}

impl DataFile {
    /// Opens or creates a file.
    pub(super) fn open(path: &Path, control: FileControl) -> Result<Self, redb::DatabaseError> {
        Ok(Self { file: FileBackend::new(open_private(path)?)?, control })
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.control.0.mode.load(Ordering::SeqCst) {
            SEALED => Err(io::Error::other("the data file is closed")),
            #[cfg(test)]
            fault if fault == DiskFault::DiskFull as u8 => Err(io::Error::from_raw_os_error(28)),
            _ => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        #[cfg(test)]
        if self.control.0.mode.load(Ordering::SeqCst) == DiskFault::SyncFails as u8 {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.control.before_change()?;
        #[cfg(test)]
        self.control.0.syncs.fetch_add(1, Ordering::SeqCst);
        self.file.sync_data()
    }
}

impl StorageBackend for DataFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.control.before_change()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check_writable()?;
        self.sync().inspect_err(|_| self.control.0.sync_failed.store(true, Ordering::SeqCst))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        if let Err(error) = self.control.before_change() {
            self.file.write(offset, data.get(..data.len() / 2).unwrap_or_default())?; // a torn write
            return Err(error);
        }
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
