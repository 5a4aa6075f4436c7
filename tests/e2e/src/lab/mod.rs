//! The lab: the owner of everything that one test creates on the host.
//!
//! A lab has a number, and from it a name (`mk7`), a directory, a network (10.77.7.0/24), a loopback address
//! (127.77.7.1) and a cgroup. A lock file keeps two test processes from taking the same number. The lab's janitor is a
//! process of its own that also holds the lock. It cleans up when the lab ends, and when the test process dies.

mod file_system;
mod network;
mod process;

use file_system::LabFileSystem;
pub use network::NetworkPort;
pub(crate) use network::ip;
pub use process::LabProcess;
pub(crate) use process::{kill_group, last_lines, print_note, resident_memory, spawn_into};

use crate::{TestEnvironment, cache, cgroup, command};
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// The directory of the lock files.
const LOCK_DIR: &str = "/run/machinist-testkit";

/// How many labs may exist at the same time.
const MAX_LABS: u8 = 200;

/// The owner of names, files, network and processes of one test. Clones are handles of the same lab.
#[derive(Debug, Clone)]
pub struct Lab(Arc<LabInner>);

#[derive(Debug)]
struct LabInner {
    number: u8,
    id: LabId,
    dir: PathBuf,
    cleanup_process: Mutex<Option<Child>>,
    hosts: AtomicU8,
    bridge: OnceLock<()>,
    /// Held while something that exists once per lab is created.
    setup: Mutex<()>,
}

impl Lab {
    /// Takes a free number and starts the janitor. Fails as "environment" if something is missing.
    pub fn new() -> Result<Self> {
        Self::with_file_system(LabFileSystem::Memory)
    }

    /// A lab whose files are on the host's disk, where a sync costs what it costs: for measurements.
    pub fn on_disk() -> Result<Self> {
        Self::with_file_system(LabFileSystem::Disk)
    }

    fn with_file_system(file_system: LabFileSystem) -> Result<Self> {
        TestEnvironment::check()?;
        fs::create_dir_all(LOCK_DIR).with_context(|| format!("make {LOCK_DIR}"))?;
        for number in 0..MAX_LABS {
            if let Some(lock) = lock_number(number)? {
                return Self::start(number, lock, file_system);
            }
        }
        bail!("environment: all {MAX_LABS} labs are taken, see {LOCK_DIR}")
    }

    fn start(number: u8, mut lock: File, file_system: LabFileSystem) -> Result<Self> {
        let name = format!("mk{number}");
        let dir = cache::cache_dir()?.join("run").join(&name);
        let sweep = cache::kit_dir().join("sweep");
        let mut left = String::new();
        lock.read_to_string(&mut left)?;
        if !left.is_empty() || dir.exists() {
            command::run(Command::new(&sweep).arg(&name).arg(&dir)).context("sweep an old lab")?;
        }
        lock.set_len(0)?;
        let ticket = LabId { lab: name.clone(), token: unique_token() };
        write!(lock, "{}\n{}", dir.display(), ticket.token)?;
        fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        let janitor = Command::new("setsid")
            .args(["--wait", "bash"])
            .arg(&sweep)
            .arg(&name)
            .arg(&dir)
            .arg("wait")
            .stdin(Stdio::piped())
            .stdout(lock)
            .spawn()
            .context("start the janitor")?;
        // Only now: the janitor unmounts it.
        file_system.mount(&dir)?;
        let lab = Self(Arc::new(LabInner {
            number,
            id: ticket,
            dir,
            cleanup_process: Mutex::new(Some(janitor)),
            hosts: AtomicU8::new(10),
            bridge: OnceLock::new(),
            setup: Mutex::new(()),
        }));
        cgroup::make(&lab.name())?;
        Ok(lab)
    }

    /// The lab's name, the prefix of every name in it.
    pub fn name(&self) -> String {
        format!("mk{}", self.0.number)
    }

    /// What distinguishes this lab from a later one with the same name.
    pub fn id(&self) -> LabId {
        self.0.id.clone()
    }

    /// The lab's directory, which is removed with the lab.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// A new directory inside the lab's.
    pub fn create_dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.dir.join(name);
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(path)
    }

    /// A new mount point. Unlike the lab's directory, which may be below a user's home, every user of a machine can
    /// reach it.
    ///
    /// The mount points are on a shared mount, so an unmount propagates to the namespaces that machines have copied.
    /// Otherwise a disk that was cut would stay mounted there and come back broken.
    pub(crate) fn mount_point(&self, name: &str) -> Result<PathBuf> {
        let dir = mount_points(&self.name());
        let guard = self.0.setup.lock();
        if !crate::mounts::is_mounted(&dir)? {
            fs::create_dir_all(&dir)?;
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", "mode=755", "--make-shared", "testkit"]);
            command::run(mount.arg(&dir))?;
        }
        drop(guard);
        let path = dir.join(name);
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(path)
    }

    /// A loopback address for this lab only: servers on it can use any port.
    pub fn loopback(&self) -> String {
        format!("127.77.{}.1", self.0.number)
    }

    /// The host's address on the lab's bridge. Machines reach the test's servers here.
    pub fn address(&self) -> String {
        format!("10.77.{}.1", self.0.number)
    }

    /// The lab's number, from which addresses are derived.
    pub(crate) fn number(&self) -> u8 {
        self.0.number
    }

    /// A number for the next host on the bridge.
    pub(crate) fn next_host(&self) -> u8 {
        self.0.hosts.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts a process that belongs to the lab. Its output goes to `NAME.log` in the lab's directory.
    pub fn spawn(&self, name: &str, command: &Command) -> Result<LabProcess> {
        LabProcess::start(self, name, command)
    }
}

/// One of all labs that have had this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabId {
    /// The lab's name.
    pub lab: String,
    token: String,
}

impl LabId {
    /// Whether the name belongs to a later lab by now. Then nothing of this lab can be left.
    pub fn is_reused(&self) -> Result<bool> {
        let owner = fs::read_to_string(Path::new(LOCK_DIR).join(&self.lab))?;
        Ok(owner.lines().nth(1).is_some_and(|token| token != self.token))
    }
}

impl fmt::Display for LabId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.lab, self.token)
    }
}

impl FromStr for LabId {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (lab, token) = text.split_once(' ').context("a ticket is a name and a token")?;
        Ok(Self { lab: lab.to_owned(), token: token.to_owned() })
    }
}

/// A token that no other lab has.
fn unique_token() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}-{}-{now}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The directory with the mount points of a lab.
pub(crate) fn mount_points(lab: &str) -> PathBuf {
    Path::new(LOCK_DIR).join("mnt").join(lab)
}

/// The locked lock file of a number, or `None` if another process holds it.
fn lock_number(number: u8) -> Result<Option<File>> {
    let path = Path::new(LOCK_DIR).join(format!("mk{number}"));
    let file = OpenOptions::new().read(true).append(true).create(true).open(&path);
    let file = file.with_context(|| format!("open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).context("lock a lab"),
    }
}

impl Drop for LabInner {
    fn drop(&mut self) {
        let janitor = self.cleanup_process.get_mut();
        if let Some(mut janitor) = janitor.take() {
            drop(janitor.stdin.take());
            // The janitor prints what it could not remove. The next lab with this number tries again.
            let _ = janitor.wait();
        }
    }
}
