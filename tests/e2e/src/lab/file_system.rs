//! Where the files of a lab are.
//!
//! In memory, if the host has enough of it: nothing of a lab has to survive the host, and hundreds of thousands of
//! syncs of databases, OS images and journals would otherwise wait for the disk, each for whatever else the host writes.
//! Tests of power cuts bring disks of their own, whose files here are the platters.

use crate::command;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The memory that a host must have available, in KiB. A lab uses up to 2 GiB, mostly for two OS images.
const NEEDED_MEMORY: u64 = 8 << 20;

/// Where the files of a lab are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LabFileSystem {
    /// In memory if there is enough, otherwise on the disk.
    Memory,
    /// On the disk of the host.
    Disk,
}

impl LabFileSystem {
    /// Mounts a file system of its own at the lab's directory, if it needs one.
    pub(super) fn mount(self, dir: &Path) -> Result<()> {
        let meminfo = fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
        if self == Self::Disk || available_memory(&meminfo).is_none_or(|it| it < NEEDED_MEMORY) {
            return Ok(());
        }
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "mode=755,size=50%", "testkit"]).arg(dir);
        command::run(&mut mount).map(drop)
    }
}

/// The memory that new processes can use, in KiB.
fn available_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_memory_is_read() {
        let meminfo = "MemTotal:       24000000 kB\nMemAvailable:   20000000 kB\n";
        assert_eq!(available_memory(meminfo), Some(20_000_000));
        assert_eq!(available_memory("MemTotal: 1 kB\n"), None);
        assert_eq!(available_memory(""), None);
    }
}
