//! The data directory: its lock, its format version and its files.
//!
//! ```text
//! LOCK        held while a process uses the directory; names the process
//! FORMAT      the format version of the directory
//! store.redb  the data (store.redb.new while it is written)
//! REVISION    a revision that the data have reached; older data are rejected
//! RESERVE     space that is given up when the disk is full
//! ```

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::data_file::FileControl;
use super::error::StoreError;

/// The format that this version writes, and the newest that it reads.
pub(super) const FORMAT_VERSION: u32 = 1;

/// The name of the data file.
pub(super) const DATA_FILE: &str = "store.redb";
/// The name of an incomplete data file.
pub(super) const NEW_DATA_FILE: &str = "store.redb.new";
const LOCK_FILE: &str = "LOCK";
const FORMAT_FILE: &str = "FORMAT";
const REVISION_FILE: &str = "REVISION";

/// A locked data directory. Dropping it releases the lock.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    control: FileControl,
    _lock: File,
}

impl DataDir {
    /// Creates the directory if needed, and locks it.
    pub(super) fn lock(path: &Path, control: FileControl) -> Result<Self, StoreError> {
        let create = || {
            control.before_change()?;
            DirBuilder::new().recursive(true).mode(0o700).create(path)
        };
        create().map_err(StoreError::io("create", path))?;
        let lock_path = path.join(LOCK_FILE);
        let open = || {
            control.before_change()?;
            open_private(&lock_path)
        };
        let mut lock = open().map_err(StoreError::io("open", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Locked {
                    dir: path.to_owned(),
                    holder: read_lock_holder(&mut lock),
                });
            }
            Err(TryLockError::Error(error)) => {
                return Err(StoreError::io("lock", &lock_path)(error));
            }
        }
        control
            .before_change()
            .and_then(|()| write_lock_holder(&mut lock))
            .map_err(StoreError::io("write", &lock_path))?;
        Ok(Self { path: path.to_owned(), control, _lock: lock })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether the directory contains data. Fails if they are unusable.
    pub(super) fn has_data(&self) -> Result<bool, StoreError> {
        let format = self.file(FORMAT_FILE);
        let marked = match std::fs::read_to_string(&format) {
            Ok(text) => check_format(&format, text.trim()).map(|()| true)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => return Err(StoreError::io("read", &format)(error)),
        };
        let data = self.file(DATA_FILE);
        let there = data.try_exists().map_err(StoreError::io("read", &data))?;
        if marked && !there {
            return Err(StoreError::corrupt(&data, "it is missing"));
        }
        Ok(there)
    }

    /// Writes the format version, once the data exist.
    pub(super) fn write_format(&self) -> Result<(), StoreError> {
        if self.file(FORMAT_FILE).exists() {
            return Ok(()); // `has_data` has checked it
        }
        self.write_marker_file(FORMAT_FILE, &format!("{FORMAT_VERSION}\n"))
    }

    /// Records a durable revision.
    pub(super) fn write_revision(&self, revision: u64) -> Result<(), StoreError> {
        self.write_marker_file(REVISION_FILE, &revision_text(revision))
    }

    /// Fails if the data are older than the recorded revision. redb falls back to the previous
    /// batch if the last one is incomplete, which must never happen to an acknowledged batch.
    pub(super) fn check_revision(&self, revision: u64) -> Result<(), StoreError> {
        const REMEDY: &str = "restore a backup into a fresh directory, \
            or remove the file REVISION to go on with what is there";
        let path = self.file(REVISION_FILE);
        let known = match std::fs::read(&path) {
            Ok(bytes) => parse_revision_text(&bytes).ok_or_else(|| {
                let what = "its checksum does not match".to_owned();
                StoreError::Corrupt { path, what, remedy: REMEDY }
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(StoreError::io("read", &path)(error)),
        };
        if revision < known {
            let what = format!("it is at revision {revision}, and was at {known}");
            return Err(StoreError::Corrupt { path: self.file(DATA_FILE), what, remedy: REMEDY });
        }
        Ok(())
    }

    /// Removes an incomplete new data file.
    pub(super) fn discard_new_data(&self) -> Result<(), StoreError> {
        let new = self.file(NEW_DATA_FILE);
        match self.control.before_change().and_then(|()| std::fs::remove_file(&new)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", &new)(error))
            }
            _ => Ok(()),
        }
    }

    /// Replaces the data file by the new one.
    pub(super) fn activate_new_data(&self) -> Result<(), StoreError> {
        let new = self.file(NEW_DATA_FILE);
        self.control
            .before_change()
            .and_then(|()| std::fs::rename(&new, self.file(DATA_FILE)))
            .map_err(StoreError::io("rename", &new))?;
        self.sync()
    }

    /// Makes the names of the files durable.
    fn sync(&self) -> Result<(), StoreError> {
        self.control.before_change().map_err(StoreError::io("sync", &self.path))?;
        sync_dir(&self.path)
    }

    /// Fails if the directory contains more than the remains of an interrupted restore.
    pub(super) fn ensure_empty(&self) -> Result<(), StoreError> {
        let path = &self.path;
        let listing = std::fs::read_dir(path).map_err(StoreError::io("read", path))?;
        for file in listing {
            let name = file.map_err(StoreError::io("read", path))?.file_name();
            if name != LOCK_FILE && name != NEW_DATA_FILE {
                let found = name.to_string_lossy().into_owned();
                return Err(StoreError::NotEmpty { dir: path.clone(), found });
            }
        }
        Ok(())
    }

    fn write_marker_file(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let path = self.file(name);
        let new = self.file(&format!("{name}.new"));
        let write = || {
            self.control.before_change()?;
            let mut file = open_private(&new)?;
            self.control.before_change()?;
            file.set_len(0)?;
            self.control.before_change()?;
            file.write_all(text.as_bytes())?;
            self.control.before_change()?;
            file.sync_all()?;
            self.control.before_change()?;
            std::fs::rename(&new, &path)
        };
        write().map_err(StoreError::io("write", &path))?;
        self.sync()
    }
}

/// A revision with a checksum: a smaller number would let older data pass.
fn revision_text(revision: u64) -> String {
    let digest = Sha256::digest(revision.to_string());
    format!("{revision} sha256:{}\n", crate::hex::encode(&digest[..8]))
}

/// Parses the text of a revision. Earlier versions wrote it without a checksum.
fn parse_revision_text(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (number, rest) =
        text.trim_end_matches('\n').split_once(' ').unwrap_or((text.trim_end(), ""));
    let revision: u64 = number.parse().ok()?;
    let canonical = revision.to_string() == number;
    let checked = rest.is_empty() || text == revision_text(revision);
    (canonical && checked).then_some(revision)
}

fn check_format(path: &Path, text: &str) -> Result<(), StoreError> {
    match text.parse::<u32>() {
        Ok(FORMAT_VERSION) => Ok(()),
        Ok(_) => {
            let (path, found) = (path.to_owned(), text.to_owned());
            Err(StoreError::Format { path, found, known: FORMAT_VERSION })
        }
        Err(_) => Err(StoreError::corrupt(path, format!("{text:?} is not a format"))),
    }
}

/// Opens or creates a file that only its owner can read.
pub(super) fn open_private(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Makes directory entries durable.
pub(super) fn sync_dir(path: &Path) -> Result<(), StoreError> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(StoreError::io("sync", path))
}

fn write_lock_holder(lock: &mut File) -> std::io::Result<()> {
    let binary = std::env::current_exe().ok();
    let binary = binary.as_deref().and_then(Path::file_name).unwrap_or_default();
    lock.set_len(0)?;
    write!(lock, "process {} ({})", std::process::id(), binary.to_string_lossy())
}

fn read_lock_holder(lock: &mut File) -> String {
    let mut text = String::new();
    let read = lock.rewind().and_then(|()| lock.take(200).read_to_string(&mut text));
    match read {
        Ok(1..) => text,
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_have_a_checksum() {
        let text = revision_text(1234);
        assert_eq!(parse_revision_text(text.as_bytes()), Some(1234));
        assert_eq!(parse_revision_text(b"1234\n"), Some(1234), "as earlier versions wrote it");
        for bad in ["", "x", "-1", "12 34", "1234 sha256:00"] {
            assert_eq!(parse_revision_text(bad.as_bytes()), None, "{bad:?}");
        }
        for place in 0..text.len() {
            for bit in 0..8 {
                let mut flipped = text.clone().into_bytes();
                flipped[place] ^= 1 << bit;
                let found = parse_revision_text(&flipped);
                assert!(
                    found.is_none_or(|found| found == 1234),
                    "byte {place} bit {bit}: {found:?}"
                );
            }
        }
    }
}
