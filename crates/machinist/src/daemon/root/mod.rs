//! A root directory that is opened once. The kernel resolves every path beneath it, and no links are
//! followed: where links count, the plan has already resolved them.

mod facts;
mod progress;
mod read;

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use machinist_core::apply::{FileOwner, HostDefaults};
use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, fchmod, flock, fsync,
    mkdirat, open, openat, openat2, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

pub(super) use progress::{WorkOnDisk, work_on_disk};
pub(super) use read::{MAX_FILE_SIZE, set_meta};

/// A directory that is the root of a machine.
#[derive(Debug)]
pub struct HostRoot {
    fd: OwnedFd,
    path: PathBuf,
    /// The directory that was opened last. The next path is most often in it too.
    last_directory: Mutex<Option<(String, Arc<OwnedFd>)>>,
}

impl HostRoot {
    /// Opens and locks a root.
    pub fn open(path: &Path) -> Result<Self> {
        let root = Self::open_read_only(path)?;
        match flock(&root.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                bail!(
                    "--root {}: another machinist holds the lock: wait for it to finish",
                    path.display()
                )
            }
            Err(error) => {
                return Err(error).context(format!("--root {}: cannot lock", path.display()));
            }
        }
        Ok(root)
    }

    /// Opens a root for reading, without a lock.
    pub(super) fn open_read_only(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())
            .with_context(|| format!("--root {}: cannot open this directory", path.display()))?;
        let root = Self { fd, path: path.to_owned(), last_directory: Mutex::new(None) };
        if root.open_directory("/etc").is_err() {
            bail!(
                "--root {}: there is no directory etc in it: name the root of a system, or make {}",
                path.display(),
                path.join("etc").display()
            );
        }
        Ok(root)
    }

    /// The path, for people.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory beneath the root.
    pub(super) fn open_directory(&self, path: &str) -> io::Result<OwnedFd> {
        progress::count(path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let relative = path.trim_start_matches('/');
        let relative = if relative.is_empty() { "." } else { relative };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        Ok(openat2(&self.fd, relative, flags, Mode::empty(), resolve)?)
    }

    /// Opens the directory of a path. Returns it with the name in it.
    pub(super) fn open_parent<'a>(&self, path: &'a str) -> io::Result<(Arc<OwnedFd>, &'a str)> {
        progress::count(path);
        let (directory, name) = split(path);
        let mut last = self.last_directory.lock();
        if let Some((_, fd)) = last.as_ref().filter(|(path, _)| path == directory) {
            return Ok((Arc::clone(fd), name));
        }
        let fd = Arc::new(self.open_directory(directory)?);
        *last = Some((directory.to_owned(), Arc::clone(&fd)));
        Ok((fd, name))
    }

    /// Directories are created and removed: the cached one may be another now.
    fn clear_directory_cache(&self) {
        *self.last_directory.lock() = None;
    }

    /// Another name in the directory of a path.
    pub(super) fn sibling(&self, path: &str, name: &str) -> String {
        let (directory, _) = split(path);
        format!("{}/{name}", directory.trim_end_matches('/'))
    }

    /// Syncs the names in a directory.
    pub(super) fn fsync_directory(&self, path: &str) -> io::Result<()> {
        Ok(fsync(self.open_directory(path)?)?)
    }

    /// Whether anything is at a path.
    pub(super) fn exists(&self, path: &str) -> io::Result<bool> {
        let (directory, name) = match self.open_parent(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            place => place?,
        };
        match statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a file that only root may read, and opens it for writing. Replaces the leftover of an
    /// interrupted run.
    pub(super) fn create(&self, path: &str) -> io::Result<std::fs::File> {
        match self.create_new(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove(path)?;
                self.create_new(path)
            }
            done => done,
        }
    }

    fn create_new(&self, path: &str) -> io::Result<std::fs::File> {
        let (directory, name) = self.open_parent(path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&*directory, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Writes a file completely or not at all. It is on disk when this returns.
    pub(super) fn write_file(&self, path: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let new = format!("{path}.machinist-new");
        let write = || {
            let mut file = self.create(&new)?;
            file.write_all(bytes)?;
            fchmod(&file, Mode::from_raw_mode(mode))?;
            file.sync_all()?;
            self.rename(&new, path)
        };
        write().inspect_err(|_| {
            // A full disk must not stay full of what could not be written.
            let _ = self.remove(&new);
        })?;
        self.fsync_directory(split(path).0)
    }

    /// Creates a directory that only root may enter.
    pub(super) fn make_directory(&self, path: &str) -> io::Result<()> {
        self.clear_directory_cache();
        let (directory, name) = self.open_parent(path)?;
        Ok(mkdirat(&*directory, name, Mode::RWXU)?)
    }

    /// Removes a file or link. A missing one is not an error.
    pub(super) fn remove(&self, path: &str) -> io::Result<()> {
        self.unlink(path, AtFlags::empty())
    }

    /// Removes an empty directory. A missing one is not an error.
    pub(super) fn remove_directory(&self, path: &str) -> io::Result<()> {
        let done = self.unlink(path, AtFlags::REMOVEDIR);
        self.clear_directory_cache();
        done
    }

    fn unlink(&self, path: &str, flags: AtFlags) -> io::Result<()> {
        let (directory, name) = match self.open_parent(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            place => place?,
        };
        match unlinkat(&*directory, name, flags) {
            // A name that the file system does not allow cannot exist either.
            Ok(()) | Err(Errno::NOENT | Errno::NAMETOOLONG) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames an entry of a directory, and replaces the entry that has the new name.
    pub(super) fn rename(&self, path: &str, to: &str) -> io::Result<()> {
        let (directory, name) = self.open_parent(path)?;
        Ok(renameat(&*directory, name, &*directory, split(to).1)?)
    }

    /// Renames an entry of a directory, unless another entry has the new name.
    pub(super) fn rename_no_replace(&self, path: &str, to: &str) -> io::Result<()> {
        let (directory, name) = self.open_parent(path)?;
        let to = split(to).1;
        match renameat_with(&*directory, name, &*directory, to, RenameFlags::NOREPLACE) {
            // Not every file system supports it.
            Err(Errno::INVAL | Errno::NOSYS) => Ok(renameat(&*directory, name, &*directory, to)?),
            done => Ok(done?),
        }
    }
}

/// The owner of new files, and today's date.
pub(super) fn host_defaults() -> HostDefaults {
    let owner = FileOwner {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let today = u32::try_from(seconds / 86_400).unwrap_or_default();
    HostDefaults { owner, today, keys_files: None, has_containerd: false }
}

/// Splits a path into directory and name.
pub(super) fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((directory, name)) => (directory, name),
        None => ("/", path),
    }
}
