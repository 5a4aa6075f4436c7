//! The data file as redb sees it: it can be sealed, after which nothing is written any more.
//!
//! redb ends a clean shutdown by writing the state of its allocator, which it believes unchecked at
//! the next start: a flipped bit in there makes it panic. So the file is sealed before it is
//! closed. Every start is then one after a crash, where redb checks the sum of every page.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::data_dir::open_private;

const SEALED: u8 = 1;

/// Says what the file does, and tells what happened to it; a clone is the same switch.
#[derive(Clone, Debug, Default)]
pub(super) struct FileControl(Arc<FileControlState>);

#[derive(Debug, Default)]
struct FileControlState {
    mode: AtomicU8,
    sync_failed: AtomicBool,
}

impl FileControl {
    /// Refuses all writes from now on.
    pub(super) fn seal(&self) {
        self.0.mode.store(SEALED, Ordering::SeqCst);
    }

    /// Whether a sync has failed: the kernel may then show data that the disk does not have.
    pub(super) fn sync_failed(&self) -> bool {
        self.0.sync_failed.load(Ordering::SeqCst)
    }

    /// The file was replaced by one whose syncs have not failed.
    pub(super) fn clear_sync_failure(&self) {
        self.0.sync_failed.store(false, Ordering::SeqCst);
    }

    /// Works from now on.
    #[cfg(test)]
    pub(super) fn resume(&self) {
        self.0.mode.store(0, Ordering::SeqCst);
    }

    /// Fails from now on, as a disk would.
    #[cfg(test)]
    pub(super) fn inject_fault(&self, fault: DiskFault) {
        self.0.mode.store(fault as u8, Ordering::SeqCst);
    }
}

/// What a disk may do.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) enum DiskFault {
    /// It has no space left.
    DiskFull = 2,
    /// It takes writes but does not make them durable.
    SyncFails = 3,
}

/// A file with a switch.
#[derive(Debug)]
pub(super) struct DataFile {
    file: FileBackend,
    control: FileControl,
}

impl DataFile {
    /// Opens a file, or makes an empty one.
    pub(super) fn open(path: &Path, switch: FileControl) -> Result<Self, redb::DatabaseError> {
        Ok(Self { file: FileBackend::new(open_private(path)?)?, control: switch })
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
