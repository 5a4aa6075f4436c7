//! A virtual machine with its own kernel, initramfs and disk.
//!
//! The disk holds an ostree sysroot. By default the kit acts as the boot loader: at each start it reads the newest
//! loader entry from the disk and passes its kernel, initramfs and arguments to QEMU. With [`QemuBuilder::boot_loader`]
//! the disk has a real boot loader, and the machine reboots in place. Without hardware virtualisation a boot takes half
//! a minute, so use this only for what needs a real kernel; everything else is a [`crate::Machine`].
//!
//! The emulator runs in a network namespace on the lab's bridge, as a [`crate::Machine`] does: through QEMU's NAT the
//! machine reaches servers on [`Lab::address`] under that address, and nothing else.

mod builder;
mod console_shell;
mod disk;
mod emulator;
mod partitions;

pub use builder::QemuBuilder;
pub use emulator::skip_without_emulator;

use crate::command::ExitOutput;
use crate::lab::{Lab, LabProcess, NetworkPort, last_lines};
use crate::wait_with_timeout;
use anyhow::{Context, Result, anyhow};
use disk::DiskImage;
use emulator::{EMULATOR, FAST_BOOT_ARGS};
use parking_lot::{Mutex, MutexGuard};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Timeout of a boot or any other step: half a minute on an idle host, more under load.
pub const BOOT_TIMEOUT: Duration = Duration::from_secs(300);

/// A virtual machine. It stops when its handle is dropped.
#[derive(Debug)]
pub struct VirtualMachine {
    name: String,
    dir: PathBuf,
    image: DiskImage,
    boot_loader: bool,
    port: NetworkPort,
    process: Mutex<Option<LabProcess>>,
    lab: Lab,
}

impl VirtualMachine {
    /// The machine's name, which is also its host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Switches the machine on and waits for the line that says it is up. Returns the line.
    pub fn boot(&self) -> Result<String> {
        // The previous boot's console contains a marker that would be taken for the new one.
        let _ = fs::remove_file(self.serial());
        let _ = fs::remove_file(self.socket());
        let command = emulator::command(self)?;
        *self.lock() = Some(self.lab.spawn(&format!("{}-qemu", self.name), &command)?);
        self.wait_boots(1, BOOT_TIMEOUT)
    }

    /// How often the machine has come up since it was switched on.
    pub fn boots(&self) -> usize {
        boot_markers(&self.console()).count()
    }

    /// Waits until the machine has come up this often since it was switched on. Returns the line that says so.
    pub fn wait_boots(&self, count: usize, limit: Duration) -> Result<String> {
        self.wait_console(&format!("{} to be up", self.name), limit, |console| {
            boot_markers(console).nth(count - 1).map(str::to_owned)
        })
    }

    /// Waits until the serial console contains something.
    pub fn wait_console<T>(
        &self,
        what: &str,
        limit: Duration,
        mut find: impl FnMut(&str) -> Option<T>,
    ) -> Result<T> {
        let mut found = None;
        wait_with_timeout(limit, what, || {
            let mut process = self.lock();
            let process = process.as_mut().context("the machine is off")?;
            let serial = self.console();
            // The last line may be incomplete.
            found = serial.rfind('\n').and_then(|end| find(&serial[..=end]));
            if found.is_none() {
                process.check_alive().context(last_lines(&serial, 15))?;
            }
            Ok(found.is_some())
        })
        .with_context(|| last_lines(&self.console(), 15))?;
        found.ok_or_else(|| anyhow!("what was found is gone"))
    }

    /// Runs a shell script in the machine. Any exit code is accepted.
    pub fn sh(&self, script: &str) -> Result<ExitOutput> {
        console_shell::run(&self.socket(), script)
    }

    /// Reboots the machine cleanly. Returns the line that says it is up again.
    pub fn reboot(&self) -> Result<String> {
        let seen = self.boots();
        console_shell::run_last(&self.socket(), "systemctl --no-block reboot")?;
        if self.boot_loader {
            return self.wait_boots(seen + 1, BOOT_TIMEOUT);
        }
        // QEMU runs with -no-reboot, so it exits.
        let mut process = self.lock().take().context("the machine is off")?;
        wait_with_timeout(BOOT_TIMEOUT, &format!("{} to go down", self.name), || {
            process.has_ended()
        })?;
        drop(process);
        self.boot()
    }

    /// Cuts the power: kills the emulator. What the machine has not written to its disk is lost.
    pub fn power_cut(&self) -> Result<()> {
        // Dropping the process kills it.
        drop(self.lock().take().context("the machine is off")?);
        // With its own boot loader, the machine repairs its disk itself.
        if self.boot_loader { Ok(()) } else { self.image.repair() }
    }

    /// Cuts the power, and checks the machine's repository from outside, because that takes minutes inside. Returns the
    /// refs in it.
    pub fn power_cut_and_fsck(&self) -> Result<String> {
        self.power_cut()?;
        self.image.check(&self.lab, &self.name)
    }

    /// The output on the serial console since the machine was switched on.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.serial()).unwrap_or_default()).into_owned()
    }

    fn serial(&self) -> PathBuf {
        self.dir.join("serial")
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("console")
    }

    fn lock(&self) -> MutexGuard<'_, Option<LabProcess>> {
        self.process.lock()
    }
}

/// The lines of a console that say the machine is up.
fn boot_markers(serial: &str) -> impl Iterator<Item = &str> {
    serial.lines().filter(|line| line.contains("testkit: up "))
}
