//! A small disk in a file. A cut loses, within milliseconds, exactly what was not synced; a quota limits what it holds.

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

/// The quota group of all files of a disk.
const TOP_GROUP: &str = "0/5";

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
        Self::formatted(lab, name, megabytes, &["mke2fs", "-q", "-F", "-t", "ext4"])
    }

    /// The same with quotas: btrfs, whose quotas need nothing else of the kernel. Those of ext4 and XFS are not in the kernel of
    /// every host.
    pub fn with_quotas(lab: &Lab, name: &str, megabytes: u32) -> Result<Self> {
        let disk = Self::formatted(lab, name, megabytes, &["mkfs.btrfs", "-q", "-f"])?;
        run(Command::new("btrfs").args(["quota", "enable"]).arg(&disk.mount))?;
        Ok(disk)
    }

    fn formatted(lab: &Lab, name: &str, megabytes: u32, format: &[&str]) -> Result<Self> {
        let image = lab.create_dir(name)?.join("disk.img");
        let mount = lab.mount_point(&format!("{name}.disk"))?;
        File::create(&image)?.set_len(u64::from(megabytes) * 1024 * 1024)?;
        run(Command::new(format[0]).args(&format[1..]).arg(&image))?;
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

    /// Lets a disk with quotas hold this much more than it does; any amount without a limit.
    pub fn set_quota(&self, megabytes: Option<u64>) -> Result<()> {
        let limit = match megabytes {
            None => "none".to_owned(),
            Some(more) => {
                run(Command::new("btrfs").args(["filesystem", "sync"]).arg(&self.mount))?;
                run(Command::new("btrfs").args(["quota", "rescan", "-w"]).arg(&self.mount))?;
                let mut show = Command::new("btrfs");
                let shown = run(show.args(["qgroup", "show", "--raw"]).arg(&self.mount))?;
                let used = shown.lines().find_map(|line| {
                    let mut columns = line.split_whitespace();
                    columns.next().filter(|name| *name == TOP_GROUP)?;
                    columns.next()?.parse::<u64>().ok()
                });
                let used = used.with_context(|| format!("no {TOP_GROUP} in {shown}"))?;
                (used + (more << 20)).to_string()
            }
        };
        let mut set = Command::new("btrfs");
        run(set.args(["qgroup", "limit", &limit, TOP_GROUP]).arg(&self.mount)).map(drop)
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
