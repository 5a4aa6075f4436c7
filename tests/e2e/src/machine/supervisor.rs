//! The firmware of a machine: starts it, and starts it again after a reboot request.

use crate::cgroup;
use crate::lab::{kill_group, spawn_into};
use anyhow::{Context, Result, anyhow};
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// The exit code of systemd-nspawn when the machine requests a reboot.
const REBOOT_EXIT_CODE: i32 = 133;

/// What the loader passes to the machine, determined again at each start.
pub(super) type BootTargetSource = Arc<dyn Fn() -> Result<BootTarget> + Send + Sync>;

/// What to boot.
#[derive(Debug, Clone, Default)]
pub(super) struct BootTarget {
    /// Arguments for systemd-nspawn that name the root.
    pub(super) args: Vec<String>,
}

/// How the machine is started, the same each time.
#[derive(Debug, Clone)]
pub(super) struct NspawnArgs {
    pub(super) args: Vec<String>,
    /// Whether the machine sees the unified cgroup hierarchy.
    pub(super) unified_cgroup: bool,
}

impl Default for NspawnArgs {
    fn default() -> Self {
        Self { args: Vec::new(), unified_cgroup: true }
    }
}

#[derive(Default)]
struct SupervisorState {
    /// The process id of systemd-nspawn while the machine is on.
    nspawn: Option<u32>,
    boots: u32,
    /// Set when the machine must not be started again, even if it requests a reboot.
    power_cut: bool,
    error: Option<String>,
    thread: Option<JoinHandle<()>>,
}

/// A handle of the thread that supervises a machine.
pub(super) struct MachineSupervisor {
    state: Arc<Mutex<SupervisorState>>,
    group: String,
    console: PathBuf,
    boot_args: NspawnArgs,
}

impl fmt::Debug for MachineSupervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Firmware").field("group", &self.group).finish_non_exhaustive()
    }
}

impl MachineSupervisor {
    pub(super) fn new(group: String, console: PathBuf, switch: NspawnArgs) -> Self {
        Self { state: Arc::default(), group, console, boot_args: switch }
    }

    fn lock(&self) -> MutexGuard<'_, SupervisorState> {
        lock(&self.state)
    }

    /// Whether the machine is on. Fails if it could not be started.
    pub(super) fn is_on(&self) -> Result<bool> {
        let state = self.lock();
        match &state.error {
            Some(error) => Err(anyhow!("{error}")),
            None => Ok(state.nspawn.is_some()),
        }
    }

    pub(super) fn boots(&self) -> u32 {
        self.lock().boots
    }

    /// Starts the machine. The thread supervises it from now on.
    pub(super) fn power_on(&self, loader: BootTargetSource) -> Result<()> {
        self.join();
        let child = self.start(&loader)?;
        let mut state = self.lock();
        (state.nspawn, state.power_cut, state.error) = (Some(child.id()), false, None);
        state.boots += 1;
        let follower = Self {
            state: Arc::clone(&self.state),
            group: self.group.clone(),
            console: self.console.clone(),
            boot_args: self.boot_args.clone(),
        };
        state.thread = Some(thread::spawn(move || follower.supervise(child, &loader)));
        Ok(())
    }

    fn supervise(&self, mut child: Child, loader: &BootTargetSource) {
        loop {
            let code = child.wait().ok().and_then(|status| status.code());
            kill_group(&self.group);
            // Dead containers leave cgroups behind, which a real power cycle would not.
            cgroup::remove(&self.group, true);
            let mut state = self.lock();
            if code != Some(REBOOT_EXIT_CODE) || state.power_cut {
                state.nspawn = None;
                return;
            }
            drop(state);
            let started = self.start(loader);
            let mut state = self.lock();
            match started {
                Ok(next) => {
                    state.nspawn = Some(next.id());
                    state.boots += 1;
                    child = next;
                }
                Err(error) => {
                    state.nspawn = None;
                    state.error = Some(format!("{error:#}"));
                    return;
                }
            }
            if state.power_cut {
                drop(state);
                // The power was cut between two starts.
                kill_group(&self.group);
            }
        }
    }

    fn start(&self, loader: &BootTargetSource) -> Result<Child> {
        let mut nspawn = Command::new("systemd-nspawn");
        nspawn.args([
            "--quiet",
            "--boot",
            "--register=no",
            "--keep-unit",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            "--console=read-only",
        ]);
        nspawn.args(&self.boot_args.args).args(loader()?.args);
        let unified = if self.boot_args.unified_cgroup { "1" } else { "0" };
        nspawn.env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", unified);
        spawn_into(&self.group, &nspawn, &self.console)
    }

    /// The machine's init process, as a host pid.
    pub(super) fn leader(&self) -> Result<Pid> {
        let nspawn = self.lock().nspawn.context("the machine is off")?;
        let children = fs::read_to_string(format!("/proc/{nspawn}/task/{nspawn}/children"));
        let children = children.context("the machine has just gone off")?;
        let leader = children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid| {
            // The process that is pid 1 in its own namespace; nspawn has a helper process before it.
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            ids.is_some_and(|ids| ids.split_whitespace().collect::<Vec<_>>()[1..] == ["1"])
        });
        leader.and_then(Pid::from_raw).context("the machine has no first process yet")
    }

    /// Cuts the power.
    pub(super) fn power_cut(&self) -> Result<()> {
        self.lock().power_cut = true;
        match self.leader() {
            Ok(leader) => kill_process(leader, Signal::KILL).context("kill the first process"),
            // Between two boots, or already off.
            Err(_) => {
                kill_group(&self.group);
                Ok(())
            }
        }
    }

    /// Stops the machine and its thread.
    pub(super) fn stop(&self) {
        self.lock().power_cut = true;
        kill_group(&self.group);
        self.join();
    }

    fn join(&self) {
        let thread = self.lock().thread.take();
        if let Some(thread) = thread {
            // A thread that panicked leaves nothing to wait for.
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<SupervisorState>) -> MutexGuard<'_, SupervisorState> {
    state.lock()
}
