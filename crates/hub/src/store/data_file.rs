//! The data file as redb sees it. It can be sealed against further writes.
//!
//! At a clean shutdown redb writes its allocator state, which it trusts unchecked at the next
//! start: a flipped bit in it makes redb panic. The file is therefore sealed before it is closed.
//! Every start is then a recovery, in which redb verifies the checksum of every page.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::data_dir::open_private;

const SEALED: u8 = 1;

/// Controls the file and reports failed syncs. A clone controls the same file.
#[derive(Clone, Debug, Default)]
pub(super) struct FileControl(Arc<FileControlState>);

#[derive(Debug, Default)]
struct FileControlState {
    mode: AtomicU8,
    sync_failed: AtomicBool,
}

impl FileControl {
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
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check_writable()?;
        self.sync().inspect_err(|_| self.control.0.sync_failed.store(true, Ordering::SeqCst))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
