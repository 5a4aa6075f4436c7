//! A small ext4 disk in a file. A cut loses, within milliseconds, exactly what was not synced.

use crate::command::{run, run_args};
use crate::lab::Lab;
use crate::mounts::is_mounted;
use crate::wait::wait_with_timeout;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long others may hold a disk that is being unmounted.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);

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

    /// Unmounts the disk, and waits until the kernel has let go of it. A child that another test has just forked holds
    /// our open files until it calls exec, so a busy disk is retried.
    ///
    /// An unmount that succeeds is not enough: as long as a process holds a file of a mount that another namespace had,
    /// for example by reading the state of a process that has just died, the file system stays alive. The next mount of
    /// the image would get it again, with all I/O failing after a cut.
    pub fn detach(&self) -> Result<()> {
        if is_mounted(&self.mount)? {
            let unmount = || run(Command::new("umount").arg(&self.mount)).map(|_| true);
            wait_with_timeout(RELEASE_TIMEOUT, "the disk to be unmounted", unmount)?;
        }
        wait_with_timeout(RELEASE_TIMEOUT, "the kernel to let go of the disk", || {
            Ok(!is_loop_device(&self.image)?)
        })
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

/// Whether a loop device has this file.
fn is_loop_device(image: &Path) -> Result<bool> {
    let image = image.canonicalize()?;
    for entry in fs::read_dir("/sys/block").context("list the block devices")? {
        // A loop device that has no file has no such attribute.
        let backing = fs::read_to_string(entry?.path().join("loop/backing_file"));
        if backing.is_ok_and(|backing| Path::new(backing.trim_end()) == image) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // The janitor removes a disk that is still in use.
        let _ = self.detach();
    }
}
