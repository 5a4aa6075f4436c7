//! The disk of a virtual machine, and what the boot loader reads from it.

use crate::command::{output, run, run_args};
use crate::lab::Lab;
use crate::machine::BlsEntry;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A disk: one ext4 file system labelled `root`, or partitions with a boot loader.
#[derive(Debug)]
pub(super) struct DiskImage(pub(super) PathBuf);

/// What the boot loader passes to the emulator.
#[derive(Debug)]
pub(super) struct BootFiles {
    pub(super) linux: PathBuf,
    pub(super) initrd: PathBuf,
    pub(super) options: String,
}

impl DiskImage {
    /// A disk with the contents of a directory. The directory is not needed afterwards.
    pub(super) fn create(path: &Path, contents: &Path) -> Result<Self> {
        let mut mke2fs = Command::new("mke2fs");
        mke2fs
            .args(["-q", "-F", "-t", "ext4", "-L", "root", "-d"])
            .arg(contents)
            .arg(path)
            .arg("3G");
        run(&mut mke2fs)?;
        Ok(Self(path.to_owned()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Replays the journal. Without this, a disk that was cut shows older files.
    pub(super) fn repair(&self) -> Result<()> {
        let mut e2fsck = Command::new("e2fsck");
        let output = output(e2fsck.args(["-E", "journal_only", "-y"]).arg(&self.0))?;
        // Exit code 1 means that errors were corrected.
        if output.code > 1 {
            bail!("e2fsck ended with {}: {}", output.code, output.stderr.trim());
        }
        Ok(())
    }

    /// Checks every object in the repository of the disk while the machine is off. Returns the refs in it.
    pub(super) fn check(&self, lab: &Lab, name: &str) -> Result<String> {
        let at = lab.mount_point(&format!("{name}.disk"))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&self.0).arg(&at))?;
        let repo = format!("--repo={}/ostree/repo", at.display());
        let checked = run_args("ostree", ["fsck", "--quiet", &repo])
            .and_then(|_| run_args("ostree", ["refs", &repo]));
        run(Command::new("umount").arg(&at))?;
        checked
    }

    fn debugfs(&self, request: &str) -> Result<String> {
        run(Command::new("debugfs").args(["-R", request]).arg(&self.0))
    }

    /// Copies the newest loader entry's kernel and initramfs into a directory. Returns them with the kernel arguments.
    pub(super) fn kernel(&self, dir: &Path) -> Result<BootFiles> {
        let list = self.debugfs("ls -p /boot/loader/entries")?;
        // /inode/mode/uid/gid/name/size/
        let names = list.lines().filter_map(|line| line.split('/').nth(5));
        let mut newest: Option<BlsEntry> = None;
        for name in names.filter(|name| name.ends_with(".conf")) {
            let entry =
                BlsEntry::parse(&self.debugfs(&format!("cat /boot/loader/entries/{name}"))?)?;
            if newest.as_ref().is_none_or(|newest| newest.version < entry.version) {
                newest = Some(entry);
            }
        }
        let entry = newest.context("the disk has no loader entry")?;
        let (linux, initrd) = (dir.join("vmlinuz"), dir.join("initramfs"));
        for (from, to) in [(&entry.linux, &linux), (&entry.initrd, &initrd)] {
            self.debugfs(&format!("dump /boot/{} {}", from.trim_start_matches('/'), to.display()))?;
            if fs::metadata(to).map_or(0, |meta| meta.len()) == 0 {
                bail!("{from} is not on the disk");
            }
        }
        Ok(BootFiles { linux, initrd, options: entry.options })
    }
}
