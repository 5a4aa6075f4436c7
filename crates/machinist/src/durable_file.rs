//! Files that must survive a power loss: written completely or not at all, and on disk when a call returns.
//!
//! The one place that knows the order: sync the contents, rename, sync the directory. Files beneath the root of
//! a machine are written by `daemon::root`, which does the same without following links.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::fault_injection;

/// The permissions of a file that only its owner may read.
pub(crate) const PRIVATE: u32 = 0o600;
/// The permissions of a file that everyone may read.
pub(crate) const PUBLIC: u32 = 0o644;

/// Writes a file, or replaces it.
pub(crate) fn write(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let part = part_path(path);
    remove_if_exists(&part)?;
    let mut options = OpenOptions::new();
    let written =
        options.write(true).create_new(true).mode(mode).open(&part).and_then(|mut file| {
            // The umask does not apply.
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.write_all(contents)?;
            file.sync_all()?;
            rename(&part, path)
        });
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&part);
    }
    written
}

/// A file that is written as a stream, beside the place that it gets when it is complete. It is removed unless it is
/// renamed.
#[derive(Debug)]
pub(crate) struct PartFile {
    file: File,
    part: PathBuf,
    path: PathBuf,
    is_renamed: bool,
}

impl PartFile {
    /// Creates the file beside `path`. The remains of an interrupted write are replaced.
    pub(crate) fn begin(path: &Path, mode: u32) -> io::Result<Self> {
        let part = part_path(path);
        remove_if_exists(&part)?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(mode).open(&part)?;
        Ok(Self { file, part, path: path.to_owned(), is_renamed: false })
    }

    /// Where the file is until it is renamed.
    pub(crate) fn part(&self) -> &Path {
        &self.part
    }

    /// Syncs the contents; returns their size.
    pub(crate) fn sync(&self) -> io::Result<u64> {
        self.file.sync_all()?;
        Ok(self.file.metadata()?.len())
    }

    /// Gives a file whose contents are synced its name.
    pub(crate) fn rename(mut self) -> io::Result<()> {
        rename(&self.part, &self.path)?;
        self.is_renamed = true;
        Ok(())
    }
}

impl io::Write for PartFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.is_renamed {
            // The error that led here is the one to report.
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Creates a symbolic link, or replaces what is there.
pub(crate) fn write_symlink(target: &str, path: &Path) -> io::Result<()> {
    let part = part_path(path);
    remove_if_exists(&part)?;
    symlink(target, &part)?;
    rename(&part, path)
}

/// Gives a file another name.
pub(crate) fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    fsync_directory(parent(to))
}

/// Renames a file whose contents are synced.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fault_injection::point();
    fs::rename(from, to)?;
    fsync_directory(parent(to))?;
    fault_injection::point();
    Ok(())
}

/// Removes a file. Returns whether it was there.
pub(crate) fn remove(path: &Path) -> io::Result<bool> {
    let removed = remove_if_exists(path)?;
    if removed {
        fsync_directory(parent(path))?;
        fault_injection::point();
    }
    Ok(removed)
}

/// Creates a directory and its missing parents.
pub(crate) fn create_directories(path: &Path) -> io::Result<()> {
    create_directory(path, 0o777)
}

/// Creates a directory with these permissions, less the umask, and its missing parents.
pub(crate) fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    create_directories(parent(path))?;
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => {
            fsync_directory(parent(path))?;
            fault_injection::point();
            Ok(())
        }
    }
}

/// Syncs the names in a directory.
pub(crate) fn fsync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn remove_if_exists(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn part_path(path: &Path) -> PathBuf {
    let mut part = path.to_owned().into_os_string();
    part.push(".part");
    part.into()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_with_their_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        for (text, mode) in [("one", PUBLIC), ("two", PRIVATE), ("three", 0o640)] {
            write(&path, text.as_bytes(), mode).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_write_that_fails_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        // A directory cannot be replaced by a file.
        fs::create_dir(&path).unwrap();
        assert!(write(&path, b"x", PRIVATE).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(write(&directory.path().join("none/a"), b"x", PRIVATE).is_err());
    }

    #[test]
    fn a_part_file_disappears_unless_it_is_renamed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let count = || fs::read_dir(directory.path()).unwrap().count();
        for is_complete in [false, true] {
            let mut part = PartFile::begin(&path, PRIVATE).unwrap();
            part.write_all(b"text").unwrap();
            assert_eq!((part.sync().unwrap(), count(), path.exists()), (4, 1, false));
            if is_complete {
                part.rename().unwrap();
            } else {
                drop(part);
            }
            assert_eq!((count(), path.exists()), (usize::from(is_complete), is_complete));
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, PRIVATE);
    }

    #[test]
    fn links_replace_files_and_do_not_follow_them() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        write(&file, b"x", PRIVATE).unwrap();
        for target in ["file", "/elsewhere"] {
            write_symlink(target, &link).unwrap();
            assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
        }
        write(&link, b"y", PRIVATE).unwrap();
        assert_eq!(
            (fs::read(&file).unwrap(), fs::read(&link).unwrap()),
            (b"x".to_vec(), b"y".to_vec())
        );
        assert!(remove(&link).unwrap() && !remove(&link).unwrap());
    }

    #[test]
    fn missing_directories_are_created() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/c");
        create_directories(&path).unwrap();
        create_directories(&path).unwrap();
        assert!(path.is_dir());
    }
}
