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

use super::dir::open_private;

const SEALED: u8 = 1;

/// Says what the file does, and tells what happened to it; a clone is the same switch.
#[derive(Clone, Debug, Default)]
pub(super) struct Switch(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    mode: AtomicU8,
    unsynced: AtomicBool,
}

impl Switch {
    /// Refuses all writes from now on.
    pub(super) fn seal(&self) {
        self.0.mode.store(SEALED, Ordering::SeqCst);
    }

    /// Whether a sync has failed: the kernel may then show data that the disk does not have.
    pub(super) fn unsynced(&self) -> bool {
        self.0.unsynced.load(Ordering::SeqCst)
    }

    /// The file was replaced by one whose syncs have not failed.
    pub(super) fn replaced(&self) {
        self.0.unsynced.store(false, Ordering::SeqCst);
    }

    /// Works from now on.
    #[cfg(test)]
    pub(super) fn work(&self) {
        self.0.mode.store(0, Ordering::SeqCst);
    }

    /// Fails from now on, as a disk would.
    #[cfg(test)]
    pub(super) fn fail(&self, fault: Fault) {
        self.0.mode.store(fault as u8, Ordering::SeqCst);
    }
}

/// What a disk may do.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// It has no space left.
    Full = 2,
    /// It takes writes but does not make them durable.
    NoSync = 3,
}

/// A file with a switch.
#[derive(Debug)]
pub(super) struct DataFile {
    file: FileBackend,
    switch: Switch,
}

impl DataFile {
    /// Opens a file, or makes an empty one.
    pub(super) fn open(path: &Path, switch: Switch) -> Result<Self, redb::DatabaseError> {
        Ok(Self { file: FileBackend::new(open_private(path)?)?, switch })
    }

    fn may_write(&self) -> io::Result<()> {
        match self.switch.0.mode.load(Ordering::SeqCst) {
            SEALED => Err(io::Error::other("the data file is closed")),
            #[cfg(test)]
            fault if fault == Fault::Full as u8 => Err(io::Error::from_raw_os_error(28)),
            _ => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        #[cfg(test)]
        if self.switch.0.mode.load(Ordering::SeqCst) == Fault::NoSync as u8 {
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
        self.may_write()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.may_write()?;
        self.sync().inspect_err(|_| self.switch.0.unsynced.store(true, Ordering::SeqCst))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.may_write()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
