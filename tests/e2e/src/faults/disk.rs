//! A small ext4 disk in a file. A cut loses, within milliseconds, exactly what was not synced.

use crate::command::{run, run_args};
use crate::lab::Lab;
use crate::machine::is_mounted;
use crate::wait::wait_with_timeout;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A mounted disk. It is unmounted when its handle is dropped.
#[derive(Debug)]
pub struct LoopDisk {
    image: PathBuf,
    mount: PathBuf,
    // The lab must outlive its disk.
    _lab: Lab,
}

impl LoopDisk {
    /// An empty, mounted disk in a lab.
    pub fn new(lab: &Lab, name: &str, megabytes: u32) -> Result<Self> {
        let image = lab.create_dir(name)?.join("disk.img");
        let mount = lab.mount_point(&format!("{name}.disk"))?;
        File::create(&image)?.set_len(u64::from(megabytes) * 1024 * 1024)?;
        run(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image))?;
        let disk = Self { image, mount, _lab: lab.clone() };
        disk.attach()?;
        Ok(disk)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Mounts the disk. After a cut this replays the journal.
    pub fn attach(&self) -> Result<()> {
        if is_mounted(&self.mount)? {
            return Ok(());
        }
        let mut mount = Command::new("mount");
        // Without the long commit interval an unsynced file would be lost or kept by chance.
        mount.args(["-o", "loop,commit=600"]).arg(&self.image).arg(&self.mount);
        run(&mut mount).map(drop)
    }

    /// Unmounts the disk. A child that another test has just forked holds our open files until it calls exec, so a busy
    /// disk is retried.
    pub fn detach(&self) -> Result<()> {
        if !is_mounted(&self.mount)? {
            return Ok(());
        }
        let unmount = || run(Command::new("umount").arg(&self.mount)).map(|_| true);
        wait_with_timeout(Duration::from_secs(5), "the disk to be let go", unmount)
    }

    /// Cuts the power: from now on nothing reaches the disk, and all I/O fails.
    pub fn power_cut(&self) -> Result<()> {
        run_args("xfs_io", ["-x", "-c", "shutdown", &self.mount.to_string_lossy()])
            .map(drop)
            .context("shut the disk down")
    }

    /// Cuts the power and mounts the disk again, as after a reboot.
    pub fn power_cycle(&self) -> Result<()> {
        self.power_cut()?;
        self.detach()?;
        self.attach()
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // The janitor removes a disk that is still in use.
        let _ = self.detach();
    }
}
