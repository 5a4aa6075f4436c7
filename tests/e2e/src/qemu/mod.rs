//! A virtual machine with a kernel, an initramfs and a disk of its own.
//!
//! The disk holds an ostree sysroot. [`Qemu::new`] plays the boot loader itself: at each start it reads the newest loader
//! entry from the disk and hands its kernel, initramfs and arguments to QEMU. [`Qemu::with_boot_loader`] has a real one on the
//! disk, and reboots in place. Without hardware support a boot takes half a minute, so
//! only what needs a real kernel belongs here; everything else is a [`crate::Machine`].

mod disk;
mod partitions;
mod shell;

use crate::command::Answer;
use crate::lab::{Lab, Process};
use crate::machine::Sysroot;
use crate::{environment, wait_within};
use anyhow::{Context, Result, anyhow};
use disk::Image;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a boot may take: half a minute alone, more beside other work.
const BOOT: Duration = Duration::from_secs(240);

/// What makes a boot under emulation faster, and a panic end at once.
const FAST: &str = "console=ttyS0 mitigations=off audit=0 nokaslr tsc=reliable loglevel=4 panic=-1";

/// A virtual machine. It stops when its handle goes.
#[derive(Debug)]
pub struct Qemu {
    name: String,
    dir: PathBuf,
    image: Image,
    boot_loader: bool,
    process: Mutex<Option<Process>>,
    lab: Lab,
}

impl Qemu {
    /// A machine with a disk on which `debian/v1` is deployed with these kernel arguments; switched off.
    pub fn new(lab: &Lab, name: &str, kargs: &[&str]) -> Result<Self> {
        Self::with_programs(lab, name, kargs, &[])
    }

    /// Like [`Qemu::new`], with programs of the host in `/usr/local/bin`.
    pub fn with_programs(
        lab: &Lab,
        name: &str,
        kargs: &[&str],
        programs: &[&Path],
    ) -> Result<Self> {
        environment::find("qemu-system-x86_64")?;
        let dir = lab.folder(name)?;
        let kargs: Vec<_> = kargs.iter().map(|&karg| karg.to_owned()).collect();
        let sysroot = dir.join("sysroot");
        let made = Sysroot::make(&sysroot, &dir, "debian/v1", &kargs, false)?;
        made.pull("debian/v2")?;
        made.add_programs(programs)?;
        let image = Image::make(&dir.join("disk.raw"), &sysroot)?;
        let (name, process) = (name.to_owned(), Mutex::new(None));
        Ok(Self { name, dir, image, boot_loader: false, process, lab: lab.clone() })
    }

    /// Like [`Qemu::new`], with a real boot loader on the disk that reads what ostree has written for it.
    pub fn with_boot_loader(lab: &Lab, name: &str, kargs: &[&str]) -> Result<Self> {
        environment::find("qemu-system-x86_64")?;
        let dir = lab.folder(name)?;
        let fast = FAST.split(' ');
        let kargs: Vec<_> = kargs.iter().copied().chain(fast).map(str::to_owned).collect();
        let image = partitions::make(lab, &dir, name, &kargs)?;
        let (name, process) = (name.to_owned(), Mutex::new(None));
        Ok(Self { name, dir, image, boot_loader: true, process, lab: lab.clone() })
    }

    /// Switches the machine on and waits for the line that says it is up; gives the line.
    pub fn boot(&self) -> Result<String> {
        // The console of the boot before is no longer of interest, and its marker would be taken for the new one.
        let _ = fs::remove_file(self.serial());
        let _ = fs::remove_file(self.socket());
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args([
            "-machine",
            "q35",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "Nehalem",
            "-smp",
            "2",
        ]);
        qemu.args(["-m", "1024", "-nodefaults", "-no-user-config", "-display", "none"]);
        if !self.boot_loader {
            let kernel = self.image.kernel(&self.dir)?;
            qemu.args(["-no-reboot", "-append", &format!("{} {FAST}", kernel.options)]);
            qemu.arg("-kernel").arg(&kernel.linux).arg("-initrd").arg(&kernel.initrd);
        }
        let drive = format!("file={},if=virtio,format=raw", self.image.path().display());
        qemu.args(["-drive", &drive, "-device", "virtio-rng-pci"]);
        qemu.args(["-netdev", "user,id=n0,restrict=on"]);
        qemu.args(["-device", "virtio-net-pci,netdev=n0,romfile="]);
        qemu.arg("-serial").arg(format!("file:{}", self.serial().display()));
        let socket = format!("socket,id=h0,path={},server=on,wait=off", self.socket().display());
        qemu.args(["-device", "virtio-serial-pci", "-chardev", &socket]);
        qemu.args(["-device", "virtconsole,chardev=h0"]);
        *self.lock() = Some(self.lab.spawn(&format!("{}-qemu", self.name), &qemu)?);
        self.wait_marker(0)
    }

    /// Waits for a line that says the machine is up, after `seen` earlier ones.
    fn wait_marker(&self, seen: usize) -> Result<String> {
        let mut marker = None;
        wait_within(BOOT, &format!("{} to be up", self.name), || {
            let mut process = self.lock();
            let process = process.as_mut().context("the machine is off")?;
            let serial = self.console();
            marker = markers(&serial).nth(seen).map(str::to_owned);
            if marker.is_none() {
                process.alive().context(crate::lab::last_lines(&serial, 15))?;
            }
            Ok(marker.is_some())
        })?;
        marker.ok_or_else(|| anyhow!("the marker is gone"))
    }

    /// Runs a shell script in the machine; any exit code is an answer.
    pub fn sh(&self, script: &str) -> Result<Answer> {
        shell::run(&self.socket(), script)
    }

    /// Reboots the machine in the orderly way; gives the line that says it is up again.
    pub fn reboot(&self) -> Result<String> {
        let seen = markers(&self.console()).count();
        shell::run_last(&self.socket(), "systemctl --no-block reboot")?;
        if self.boot_loader {
            return self.wait_marker(seen);
        }
        // It is started without the wish to reboot by itself, so it ends.
        let mut process = self.lock().take().context("the machine is off")?;
        wait_within(BOOT, &format!("{} to go down", self.name), || process.has_ended())?;
        drop(process);
        self.boot()
    }

    /// Cuts the power: what the machine has not written to its disk is lost.
    pub fn power_cut(&self) -> Result<()> {
        // Dropping kills.
        drop(self.lock().take().context("the machine is off")?);
        // With a boot loader of its own, the machine looks after its disk itself.
        if self.boot_loader { Ok(()) } else { self.image.repair() }
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lines of a console that say the machine is up.
fn markers(serial: &str) -> impl Iterator<Item = &str> {
    serial.lines().filter(|line| line.contains("testkit: up "))
}
