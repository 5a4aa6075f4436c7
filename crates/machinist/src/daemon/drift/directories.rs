//! Watches directories with inotify. Each is watched for the names in it that matter; a missing directory
//! is a name in its parent. The kernel bounds inotify for all processes of a user: what cannot be watched is named in
//! [`DirectoryWatcher::unwatched`], and the caller checks it from time to time.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use machinist_core::drift::{WatchedNames, WatchedPaths};
use rustix::fs::inotify::{
    self, CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, remove_watch,
};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::super::root::HostRoot;
use super::writers::WriterTracker;

/// All events that can change a managed path.
const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR);

/// Watched directories.
#[derive(Debug)]
pub(super) struct DirectoryWatcher {
    /// None if the kernel has no more of them.
    inotify: Option<AsyncFd<OwnedFd>>,
    /// What cannot be watched, and why.
    unwatched: Option<String>,
    watched: WatchedPaths,
    /// The directories by watch descriptor; two paths of one directory share one.
    by_watch_descriptor: HashMap<i32, Vec<String>>,
    /// Which process touched what.
    pub(super) writers: WriterTracker,
}

impl DirectoryWatcher {
    pub(super) fn new() -> Self {
        Self {
            inotify: None,
            unwatched: None,
            watched: WatchedPaths::new(),
            by_watch_descriptor: HashMap::new(),
            writers: WriterTracker::new(),
        }
    }

    /// What cannot be watched, and why; `None` if everything is watched.
    pub(super) fn unwatched(&self) -> Option<&str> {
        self.unwatched.as_deref()
    }

    /// Watches exactly these directories, as far as the kernel lets it. Returns whether any of them is new.
    pub(super) fn set_watches(&mut self, root: &HostRoot, watched: WatchedPaths) -> bool {
        self.writers.clear();
        if self.inotify.is_none() {
            match open_inotify() {
                Ok(inotify) => self.inotify = Some(inotify),
                Err(error) => {
                    self.unwatched = Some(format!(
                        "nothing is watched ({error}): raise fs.inotify.max_user_instances if it is used up"
                    ));
                    return false;
                }
            }
        }
        let Some(inotify) = &self.inotify else { return false };
        let mut numbers: HashMap<i32, Vec<String>> = HashMap::new();
        let mut failed: Vec<(&String, io::Error)> = Vec::new();
        // From the top: what appears in a directory after it was scanned is noticed in its parent.
        for path in watched.keys() {
            let directory = match root.open_directory(path) {
                Ok(directory) => directory,
                Err(error) => {
                    // A directory that does not exist is a name in its parent.
                    if is_exhausted(&error) {
                        failed.push((path, error));
                    }
                    continue;
                }
            };
            let place = format!("/proc/self/fd/{}", directory.as_raw_fd());
            match add_watch(inotify.get_ref(), place, EVENTS) {
                Ok(number) => {
                    numbers.entry(number).or_default().push(path.clone());
                    self.writers.add(directory.as_fd());
                }
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => failed.push((path, error.into())),
            }
        }
        let is_new = numbers
            .iter()
            .any(|(number, paths)| self.by_watch_descriptor.get(number) != Some(paths));
        for number in self.by_watch_descriptor.keys().filter(|number| !numbers.contains_key(number))
        {
            // The kernel has already removed the watch if the directory is gone.
            let _ = remove_watch(inotify.get_ref(), *number);
        }
        self.unwatched = failed.first().map(|(path, error)| {
            format!(
                "{} of {} directories are not watched, {path:?} first ({error}): raise fs.inotify.max_user_watches if it is used up",
                failed.len(),
                watched.len()
            )
        });
        (self.by_watch_descriptor, self.watched) = (numbers, watched);
        is_new
    }

    /// Waits until a name that matters is touched; forever if nothing is watched.
    pub(super) async fn wait_touched(&mut self) -> io::Result<()> {
        loop {
            if self.take_touched()? {
                return Ok(());
            }
            let Some(inotify) = &self.inotify else { return std::future::pending().await };
            let mut guard = inotify.readable().await?;
            // The next call finds out whether there is more.
            guard.clear_ready();
        }
    }

    /// Whether a name that matters was touched since the last call.
    pub(super) fn take_touched(&mut self) -> io::Result<bool> {
        // First, while the processes still run.
        self.writers.read_events();
        let Some(inotify) = &self.inotify else { return Ok(false) };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(inotify.get_ref(), &mut buffer);
        let mut is_touched = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_string_lossy());
                    is_touched |= event.events().contains(ReadFlags::QUEUE_OVERFLOW)
                        || name.is_some_and(|name| self.is_watched(event.wd(), &name));
                }
                Err(Errno::WOULDBLOCK) => return Ok(is_touched),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn is_watched(&self, number: i32, name: &str) -> bool {
        let directories = self.by_watch_descriptor.get(&number).into_iter().flatten();
        directories.filter_map(|directory| self.watched.get(directory)).any(|names| match names {
            WatchedNames::All => true,
            WatchedNames::Some(names) => names.contains(name),
        })
    }
}

/// Fails when the user has as many instances, or the process as many files, as it may have.
fn open_inotify() -> io::Result<AsyncFd<OwnedFd>> {
    let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    #[expect(
        deprecated,
        reason = "unsound only for types whose descriptor changes; an OwnedFd has one for life"
    )]
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// Whether the process or the host has no more open files or memory.
fn is_exhausted(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}
