//! A process of a lab: in its own cgroup, with a log, stopped when its handle is dropped.

use super::Lab;
use crate::cgroup;
use crate::wait::PermanentError;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Joins the cgroups given before `--`, then executes the command after it.
const JOIN_CGROUP_SCRIPT: &str =
    r#"while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift; exec "$@""#;

/// A running process that belongs to a [`Lab`].
#[derive(Debug)]
pub struct LabProcess {
    name: String,
    group: String,
    log: PathBuf,
    child: Child,
    // The last field, so that the lab outlives its process.
    _lab: Lab,
}

impl LabProcess {
    pub(super) fn start(lab: &Lab, name: &str, command: &Command) -> Result<Self> {
        let group = format!("{}/{name}", lab.name());
        let log = lab.dir().join(format!("{name}.log"));
        let child = spawn_into(&group, command, &log)?;
        Ok(Self { name: name.to_owned(), group, log, child, _lab: lab.clone() })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Memory in use by the process and its children, in bytes.
    pub fn memory(&self) -> u64 {
        resident_memory(&cgroup::processes(&self.group))
    }

    /// Fails with a permanent error once the process has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let log = last_lines(&self.log(), 15);
                Err(PermanentError(format!("{} has ended ({status}):\n{log}", self.name)).into())
            }
        }
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.map_or(Ok(()), |pid| kill_process(pid, signal))
            .with_context(|| format!("signal {}", self.name))
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().with_context(|| format!("wait for {}", self.name))
    }
}

impl Drop for LabProcess {
    fn drop(&mut self) {
        if thread::panicking() {
            print_note(&self.name, &last_lines(&self.log(), 10));
        }
        kill_group(&self.group);
        // It was killed above, so this only reaps it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        cgroup::remove(&self.group, false);
    }
}

/// Starts a command inside a cgroup and appends its output to a log.
pub(crate) fn spawn_into(group: &str, command: &Command, log: &Path) -> Result<Child> {
    use std::os::unix::process::CommandExt as _;
    let groups = cgroup::make(group)?;
    let file = File::options().create(true).append(true).open(log);
    let file = file.with_context(|| format!("open {}", log.display()))?;
    let mut wrapped = Command::new("sh");
    wrapped.arg("-c").arg(JOIN_CGROUP_SCRIPT).arg("sh").args(groups).arg("--");
    wrapped.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(key, value),
            None => wrapped.env_remove(key),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        wrapped.current_dir(dir);
    }
    wrapped.process_group(0).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    wrapped.spawn().with_context(|| format!("start {}", command.get_program().display()))
}

/// Kills everything in a cgroup, and waits until it is empty.
pub(crate) fn kill_group(group: &str) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        let processes = cgroup::processes(group);
        // A zombie stays in its group until its parent, possibly this process, reaps it.
        let alive: Vec<_> = processes.into_iter().filter(|pid| !is_zombie(*pid)).collect();
        if alive.is_empty() {
            return;
        }
        for pid in alive.into_iter().filter_map(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn is_zombie(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

/// Resident memory of processes, without file-backed pages.
pub(crate) fn resident_memory(processes: &[i32]) -> u64 {
    let field = |status: &str, name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    let of = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        field(&status, "RssAnon:") + field(&status, "RssShmem:")
    };
    processes.iter().map(of).sum::<u64>() * 1024
}

/// The last lines of a log.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Prints a message next to a failing test.
#[expect(clippy::print_stderr, reason = "a failing test shows what its processes said last")]
pub(crate) fn print_note(who: &str, what: &str) {
    for line in what.lines() {
        eprintln!("{who}: {line}");
    }
}
