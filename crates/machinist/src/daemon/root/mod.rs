//! A root folder, opened once. Every path is resolved beneath it by the kernel, and no link is
//! followed on the way: where links are followed, the plan has done it.

mod read;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use machinist_core::apply::{FileOwner, HostDefaults};
use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, flock, fsync, mkdirat, open,
    openat, openat2, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

pub(super) use read::set_meta;

/// A folder that is the root of a machine.
#[derive(Debug)]
pub struct HostRoot {
    fd: OwnedFd,
    path: PathBuf,
    /// The folder that was opened last: the next path is most often in it too.
    last_directory: Mutex<Option<(String, Arc<OwnedFd>)>>,
}

impl HostRoot {
    /// Opens a root for this process alone.
    pub fn open(path: &Path) -> Result<Self> {
        let root = Self::open_read_only(path)?;
        match flock(&root.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                bail!("--root {}: another machinist is at work there; wait for it", path.display())
            }
            Err(error) => {
                return Err(error).context(format!("--root {}: cannot lock", path.display()));
            }
        }
        Ok(root)
    }

    /// Opens a root that is only looked at, whoever is at work there.
    pub(super) fn open_read_only(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())
            .with_context(|| format!("--root {}: cannot open this folder", path.display()))?;
        let root = Self { fd, path: path.to_owned(), last_directory: Mutex::new(None) };
        if root.open_directory("/etc").is_err() {
            bail!(
                "--root {}: there is no folder etc in it: name the root of a system, or make {}",
                path.display(),
                path.join("etc").display()
            );
        }
        Ok(root)
    }

    /// Where it is, for people.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a folder beneath the root.
    pub(super) fn open_directory(&self, path: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let relative = path.trim_start_matches('/');
        let relative = if relative.is_empty() { "." } else { relative };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        Ok(openat2(&self.fd, relative, flags, Mode::empty(), resolve)?)
    }

    /// The folder of a path, opened, and the name in it.
    pub(super) fn open_parent<'a>(&self, path: &'a str) -> io::Result<(Arc<OwnedFd>, &'a str)> {
        let (folder, name) = split(path);
        let mut last = self.last_directory.lock();
        if let Some((_, fd)) = last.as_ref().filter(|(path, _)| path == folder) {
            return Ok((Arc::clone(fd), name));
        }
        let fd = Arc::new(self.open_directory(folder)?);
        *last = Some((folder.to_owned(), Arc::clone(&fd)));
        Ok((fd, name))
    }

    /// Folders come and go: what was opened may be another one now.
    fn clear_directory_cache(&self) {
        *self.last_directory.lock() = None;
    }

    /// Another name in the folder of a path.
    pub(super) fn sibling(&self, path: &str, name: &str) -> String {
        let (folder, _) = split(path);
        format!("{}/{name}", folder.trim_end_matches('/'))
    }

    /// Makes sure that the names in a folder are on the disk.
    pub(super) fn fsync_directory(&self, path: &str) -> io::Result<()> {
        Ok(fsync(self.open_directory(path)?)?)
    }

    /// Whether anything is at a path.
    pub(super) fn exists(&self, path: &str) -> io::Result<bool> {
        let (folder, name) = match self.open_parent(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            place => place?,
        };
        match statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a new file that only root may read, and gives it for writing. What a run that died
    /// has left there goes.
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
        let (folder, name) = self.open_parent(path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&*folder, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Makes a folder that only root may enter.
    pub(super) fn make_directory(&self, path: &str) -> io::Result<()> {
        self.clear_directory_cache();
        let (folder, name) = self.open_parent(path)?;
        Ok(mkdirat(&*folder, name, Mode::RWXU)?)
    }

    /// Removes a file or link. That there is none is no error.
    pub(super) fn remove(&self, path: &str) -> io::Result<()> {
        self.unlink(path, AtFlags::empty())
    }

    /// Removes an empty folder. That there is none is no error.
    pub(super) fn remove_directory(&self, path: &str) -> io::Result<()> {
        let done = self.unlink(path, AtFlags::REMOVEDIR);
        self.clear_directory_cache();
        done
    }

    fn unlink(&self, path: &str, flags: AtFlags) -> io::Result<()> {
        let (folder, name) = match self.open_parent(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            place => place?,
        };
        match unlinkat(&*folder, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives something in a folder another name there, in place of what has that name.
    pub(super) fn rename(&self, path: &str, to: &str) -> io::Result<()> {
        let (folder, name) = self.open_parent(path)?;
        Ok(renameat(&*folder, name, &*folder, split(to).1)?)
    }

    /// The same, but only where nothing has that name.
    pub(super) fn rename_no_replace(&self, path: &str, to: &str) -> io::Result<()> {
        let (folder, name) = self.open_parent(path)?;
        let to = split(to).1;
        match renameat_with(&*folder, name, &*folder, to, RenameFlags::NOREPLACE) {
            // Some file systems cannot promise it.
            Err(Errno::INVAL | Errno::NOSYS) => Ok(renameat(&*folder, name, &*folder, to)?),
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
    HostDefaults { owner, today: u32::try_from(seconds / 86_400).unwrap_or_default() }
}

/// Splits a path into directory and name.
pub(super) fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((folder, name)) => (folder, name),
        None => ("/", path),
    }
}
