//! The daemon of a machine without systemd, such as one that is a directory: nothing stops it when the machine leaves,
//! and it would work on with an identity that is gone. So `machinist leave` asks it to end, with locks in `/run` that end
//! with the processes that hold them.
//!
//! The daemon holds one lock while it runs. `leave` holds another one while it waits for the first; the daemon looks for
//! that every second.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// What the daemon holds.
const DAEMON_LOCK: &str = "run/machinist/daemon.lock";
/// What `leave` holds.
const LEAVE_LOCK: &str = "run/machinist/leave.lock";
/// How often the daemon looks whether its machine leaves, and `leave` whether the daemon has ended.
const DAEMON_INTERVAL: Duration = Duration::from_secs(1);
const LEAVE_INTERVAL: Duration = Duration::from_millis(100);
/// How long `leave` waits. A step that has begun is completed first.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(60);

/// Says that a daemon runs for a root, until it is dropped. Without it the machine can leave all the same.
pub(super) fn hold(root: &Path) -> Option<File> {
    let held = create(&root.join(DAEMON_LOCK)).and_then(|file| {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    });
    held.inspect_err(|error| tracing::warn!(%error, "cannot say that a daemon runs here")).ok()
}

/// Returns when the machine leaves.
pub(super) async fn wait_for_leave(root: PathBuf) {
    let path = root.join(LEAVE_LOCK);
    loop {
        if File::open(&path).is_ok_and(|file| is_locked(&file)) {
            return;
        }
        tokio::time::sleep(DAEMON_INTERVAL).await;
    }
}

/// Ends the daemon of a root, if one runs that systemd did not start.
pub(super) async fn end_daemon(root: &Path) -> Result<()> {
    let (daemon, leave) = (root.join(DAEMON_LOCK), root.join(LEAVE_LOCK));
    let Ok(running) = File::open(&daemon) else { return Ok(()) };
    if is_locked(&running) {
        let request = create(&leave).with_context(|| leave.display().to_string())?;
        flock(&request, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("{}: another machinist leave runs", leave.display()))?;
        let start = Instant::now();
        while is_locked(&running) {
            if start.elapsed() > LEAVE_TIMEOUT {
                bail!(
                    "the daemon of this machine still runs after {} s: end it, or wait for its change, and run machinist leave again",
                    LEAVE_TIMEOUT.as_secs()
                );
            }
            tokio::time::sleep(LEAVE_INTERVAL).await;
        }
    }
    // They are gone after the next boot anyway.
    let _ = (fs::remove_file(daemon), fs::remove_file(leave));
    Ok(())
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

/// Whether another process, or another open file of this one, holds the lock.
fn is_locked(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => true,
        Err(_) => false,
        Ok(()) => {
            let _ = flock(file, FlockOperation::Unlock); // it ends with the file, too
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_daemon_ends_when_its_machine_leaves() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        // No daemon has ever run: nothing is made.
        end_daemon(root).await.unwrap();
        assert_eq!(fs::read_dir(root).unwrap().count(), 0);
        // One that has ended, whatever it left.
        drop(hold(root).unwrap());
        end_daemon(root).await.unwrap();
        // One that runs.
        let held = hold(root).unwrap();
        let own = root.to_owned();
        let daemon = tokio::spawn(async move {
            wait_for_leave(own).await;
            drop(held);
        });
        end_daemon(root).await.unwrap();
        daemon.await.unwrap();
        assert_eq!(fs::read_dir(root.join("run/machinist")).unwrap().count(), 0);
        // The next one does not end because of the last one's request.
        let _held = hold(root).unwrap();
        let waited =
            tokio::time::timeout(Duration::from_millis(50), wait_for_leave(root.to_owned()));
        assert!(waited.await.is_err());
    }
}
