//! A virtual machine with a kernel, an initramfs and a disk of its own.
//!
//! The disk holds an ostree sysroot. By default the kit plays the boot loader: at each start it reads the newest loader entry
//! from the disk and hands its kernel, initramfs and arguments to QEMU. With [`Builder::boot_loader`] a real one is on the
//! disk, and the machine reboots in place. Without hardware support a boot takes half a minute, so only what needs a real
//! kernel belongs here; everything else is a [`crate::Machine`].
//!
//! The emulator runs in a network namespace on the lab's bridge, as a [`crate::Machine`] does: through QEMU's own address
//! translation the machine reaches what listens on [`Lab::address`] under that very address, and nothing else.

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
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a boot, or any other step, may take: half a minute alone, more beside other work.
pub const BOOT_TIMEOUT: Duration = Duration::from_secs(300);

/// A virtual machine. It stops when its handle goes.
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
    /// The machine's name, which is its host name too.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Switches the machine on and waits for the line that says it is up; gives the line.
    pub fn boot(&self) -> Result<String> {
        // The console of the boot before is no longer of interest, and its marker would be taken for the new one.
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

    /// Waits until the machine has come up so often since it was switched on; gives the line that says so.
    pub fn wait_boots(&self, count: usize, limit: Duration) -> Result<String> {
        self.wait_console(&format!("{} to be up", self.name), limit, |console| {
            boot_markers(console).nth(count - 1).map(str::to_owned)
        })
    }

    /// Waits until something is found in what the machine has written to its serial console.
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
            // The last line may not be complete.
            found = serial.rfind('\n').and_then(|end| find(&serial[..=end]));
            if found.is_none() {
                process.check_alive().context(last_lines(&serial, 15))?;
            }
            Ok(found.is_some())
        })
        .with_context(|| last_lines(&self.console(), 15))?;
        found.ok_or_else(|| anyhow!("what was found is gone"))
    }

    /// Runs a shell script in the machine; any exit code is an answer.
    pub fn sh(&self, script: &str) -> Result<ExitOutput> {
        console_shell::run(&self.socket(), script)
    }

    /// Reboots the machine in the orderly way; gives the line that says it is up again.
    pub fn reboot(&self) -> Result<String> {
        let seen = self.boots();
        console_shell::run_last(&self.socket(), "systemctl --no-block reboot")?;
        if self.boot_loader {
            return self.wait_boots(seen + 1, BOOT_TIMEOUT);
        }
        // It is started without the wish to reboot by itself, so it ends.
        let mut process = self.lock().take().context("the machine is off")?;
        wait_with_timeout(BOOT_TIMEOUT, &format!("{} to go down", self.name), || {
            process.has_ended()
        })?;
        drop(process);
        self.boot()
    }

    /// Cuts the power: the emulator is killed, and what the machine has not written to its disk is lost.
    pub fn power_cut(&self) -> Result<()> {
        // Dropping kills.
        drop(self.lock().take().context("the machine is off")?);
        // With a boot loader of its own, the machine looks after its disk itself.
        if self.boot_loader { Ok(()) } else { self.image.repair() }
    }

    /// Cuts the power, and looks from outside whether the machine's repository is sound: inside that takes minutes. Gives the
    /// names in it.
    pub fn power_cut_and_fsck(&self) -> Result<String> {
        self.power_cut()?;
        self.image.check(&self.lab, &self.name)
    }

    /// What the machine has written to its serial console since it was switched on.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.serial()).unwrap_or_default()).into_owned()
    }

    fn serial(&self) -> PathBuf {
        self.dir.join("serial")
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("console")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<LabProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lines of a console that say the machine is up.
fn boot_markers(serial: &str) -> impl Iterator<Item = &str> {
    serial.lines().filter(|line| line.contains("testkit: up "))
}
