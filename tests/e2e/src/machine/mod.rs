//! A Debian machine in systemd-nspawn: a real systemd that boots, reboots, and loses power or link.
//!
//! A machine is an overlay on a cached base, a network namespace and a cgroup. A thread acts as its firmware: it starts
//! the machine again after a reboot request, and leaves it off after a power cut or a shutdown. An ostree machine
//! ([`Lab::ostree_machine`]) boots the deployment that its loader entries name, which are read at each start.

mod builder;
mod exec;
mod file_tree;
mod loader_entry;
mod ostree;
mod root;
mod supervisor;

pub use builder::MachineBuilder;
pub use file_tree::FileTree;
pub(crate) use loader_entry::BlsEntry;
pub(crate) use ostree::Sysroot;

use crate::lab::{Lab, NetworkPort};
use crate::wait::{DEFAULT_TIMEOUT, PermanentError};
use crate::{wait_for, wait_with_timeout};
use anyhow::{Result, bail};
use parking_lot::{Mutex, MutexGuard};
use root::MachineFiles;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use supervisor::MachineSupervisor;

/// A machine. It stops when its handle is dropped.
#[derive(Debug)]
pub struct Machine {
    name: String,
    port: NetworkPort,
    supervisor: MachineSupervisor,
    root: Mutex<MachineFiles>,
    console: PathBuf,
    group: String,
    lab: Lab,
}

impl Machine {
    /// The machine's name, which is also its host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The machine's address on the lab's bridge.
    pub fn address(&self) -> &str {
        &self.port.address
    }

    /// The network namespace, the cable and the address.
    pub fn port(&self) -> &NetworkPort {
        &self.port
    }

    /// The lab that owns the machine.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Switches the machine on and waits until systemd has started everything.
    pub fn power_on(&self) -> Result<()> {
        let root = self.lock_root();
        root.attach()?;
        self.supervisor.power_on(root.loader())?;
        drop(root);
        self.wait_until_up(DEFAULT_TIMEOUT)
    }

    /// Shuts the machine down cleanly.
    pub fn power_off(&self) -> Result<()> {
        self.sh("systemctl --no-block poweroff")?;
        self.wait_until_off()
    }

    /// Reboots the machine cleanly, and waits until it is up again with a new boot id.
    pub fn reboot(&self) -> Result<()> {
        let before = (self.supervisor.boots(), self.boot_id()?);
        // The machine may be gone before the command returns.
        let _ = self.exec(&["systemctl", "--no-block", "reboot"])?;
        self.wait_rebooted(before.0, &before.1)
    }

    /// Runs `act`, which makes the machine reboot, and waits until it is up again with a new boot id.
    pub fn wait_for_reboot_during(&self, act: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        let before = (self.supervisor.boots(), self.boot_id()?);
        act(self)?;
        self.wait_rebooted(before.0, &before.1)
    }

    fn wait_rebooted(&self, boots: u32, boot_id: &str) -> Result<()> {
        wait_for(&format!("{} to reboot", self.name), || {
            Ok(self.supervisor.is_on()? && self.supervisor.boots() > boots)
        })?;
        self.wait_until_up(DEFAULT_TIMEOUT)?;
        if self.boot_id()? == boot_id {
            bail!("{} came back with the boot id it had", self.name);
        }
        Ok(())
    }

    /// Cuts the power. A machine without its own disk only loses its processes; one with a disk
    /// ([`MachineBuilder::disk`]) loses whatever it had not synced, as real machines do.
    pub fn power_cut(&self) -> Result<()> {
        let root = self.lock_root();
        root.power_cut()?;
        self.supervisor.power_cut()?;
        self.wait_until_off()?;
        root.detach()
    }

    /// Lets the machine's disk hold this much more than it does; any amount without a limit.
    pub fn set_quota(&self, megabytes: Option<u64>) -> Result<()> {
        match self.lock_root().disk() {
            Some(disk) => disk.set_quota(megabytes),
            None => bail!("{} has no disk", self.name),
        }
    }

    /// Disconnects the network.
    pub fn link_down(&self) -> Result<()> {
        self.port.link_down()
    }

    /// Reconnects the network.
    pub fn link_up(&self) -> Result<()> {
        self.port.link_up()
    }

    /// Whether the machine is switched on.
    pub fn is_on(&self) -> bool {
        self.supervisor.is_on().unwrap_or(false)
    }

    /// How often the machine has been started, reboots included.
    pub fn boots(&self) -> u32 {
        self.supervisor.boots()
    }

    /// The kernel's id of the current boot.
    pub fn boot_id(&self) -> Result<String> {
        Ok(self.sh("cat /proc/sys/kernel/random/boot_id")?.trim().to_owned())
    }

    /// The journal of all boots.
    pub fn journal(&self) -> Result<String> {
        self.sh("journalctl --no-pager --quiet --output=short-monotonic")
    }

    /// The console output of the machine.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    /// The units that have failed.
    pub fn failed_units(&self) -> Result<Vec<String>> {
        let list = self.sh("systemctl list-units --failed --plain --no-legend")?;
        let first = |line: &str| line.split_whitespace().next().map(ToOwned::to_owned);
        Ok(list.lines().filter_map(first).collect())
    }

    /// Memory charged to the machine's processes, in bytes.
    pub fn memory(&self) -> u64 {
        crate::lab::resident_memory(&crate::cgroup::processes(&self.group))
    }

    /// Waits until a condition holds on this machine. Fails immediately when the machine goes off.
    pub fn wait_for(&self, what: &str, condition: impl FnMut(&Self) -> Result<bool>) -> Result<()> {
        self.wait_within(DEFAULT_TIMEOUT, what, condition)
    }

    /// [`Machine::wait_for`] with another timeout.
    pub fn wait_within(
        &self,
        limit: Duration,
        what: &str,
        mut condition: impl FnMut(&Self) -> Result<bool>,
    ) -> Result<()> {
        wait_with_timeout(limit, &format!("{what} on {}", self.name), || {
            if !self.supervisor.is_on()? {
                let console = crate::lab::last_lines(&self.console(), 15);
                return Err(PermanentError(format!("{} is off:\n{console}", self.name)).into());
            }
            condition(self)
        })
    }

    fn wait_until_up(&self, limit: Duration) -> Result<()> {
        self.wait_within(limit, "systemd to be up", |machine| {
            let state = machine.exec(&["systemctl", "is-system-running"])?;
            Ok(matches!(state.stdout_trimmed(), "running" | "degraded"))
        })
    }

    fn wait_until_off(&self) -> Result<()> {
        wait_for(&format!("{} to be off", self.name), || Ok(!self.supervisor.is_on()?))
    }

    /// Pulls an image of the cached repository (`debian/v1`, `debian/v2`) into an ostree machine's repository.
    pub fn pull(&self, image: &str) -> Result<()> {
        match self.lock_root().sysroot() {
            Some(sysroot) => sysroot.pull(image),
            None => bail!("{} is no ostree machine", self.name),
        }
    }

    /// Selects a loader entry of an ostree machine for the next start only, as in the boot menu: 0 is the default, 1
    /// the one before it.
    pub fn boot_entry_once(&self, index: usize) -> Result<()> {
        match self.lock_root().sysroot() {
            Some(sysroot) => {
                sysroot.select_entry(index);
                Ok(())
            }
            None => bail!("{} is no ostree machine", self.name),
        }
    }

    fn lock_root(&self) -> MutexGuard<'_, MachineFiles> {
        self.root.lock()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            crate::lab::print_note(&self.name, &crate::lab::last_lines(&self.console(), 10));
        }
        self.supervisor.stop();
        // The janitor unmounts what cannot be unmounted now.
        let _ = self.lock_root().detach();
        crate::cgroup::remove(&self.group, false);
    }
}
