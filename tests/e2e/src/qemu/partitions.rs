//! A disk with partitions and a real boot loader: extlinux, for which ostree writes the configuration.

use super::disk::DiskImage;
use crate::command::run;
use crate::lab::Lab;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

const SECTOR: u64 = 512;

/// A partition: its first sector and its length in sectors.
#[derive(Debug, Clone, Copy)]
struct Partition {
    start: u64,
    length: u64,
}

/// 256 MB for /boot. It is ext2, because extlinux cannot read every ext4.
const BOOT: Partition = Partition { start: 2048, length: 524_288 };

/// 3 GB for everything else.
const ROOT: Partition = Partition { start: 526_336, length: 6_291_456 };

/// Creates the disk of a machine in its directory, and calls `fill` while it is mounted.
pub(super) fn make(
    lab: &Lab,
    dir: &Path,
    name: &str,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<DiskImage> {
    let image = dir.join("disk.raw");
    File::create(&image)?.set_len((ROOT.start + ROOT.length) * SECTOR)?;
    BOOT.format(&image, "ext2", "boot")?;
    ROOT.format(&image, "ext4", "root")?;
    let root = lab.mount_point(&format!("{name}.disk"))?;
    ROOT.mount(&image, &root)?;
    let filled = install(&image, &root, fill);
    // Both, even after an error; otherwise the janitor has to do it.
    for mount_point in [root.join("boot"), root] {
        let _ = run(Command::new("umount").arg(mount_point));
    }
    filled?;
    write_table(&image).context("write the partition table")?;
    Ok(DiskImage(image))
}

/// Fills the disk and makes it bootable.
fn install(image: &Path, root: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let boot = root.join("boot");
    fs::create_dir_all(&boot)?;
    BOOT.mount(image, &boot)?;
    fill(root)?;
    run(Command::new("extlinux").arg("--install").arg(boot.join("syslinux"))).map(drop)
}

impl Partition {
    fn format(self, image: &Path, kind: &str, label: &str) -> Result<()> {
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F", "-t", kind, "-L", label, "-E"]);
        mke2fs.arg(format!("offset={}", self.start * SECTOR)).arg(image);
        run(mke2fs.arg(format!("{}k", self.length * SECTOR / 1024))).map(drop)
    }

    fn mount(self, image: &Path, at: &Path) -> Result<()> {
        let (offset, size) = (self.start * SECTOR, self.length * SECTOR);
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("loop,offset={offset},sizelimit={size}")]);
        run(mount.arg(image).arg(at)).map(drop)
    }

    /// The partition as a line of the table.
    fn entry(self, active: bool) -> Result<[u8; 16]> {
        let mut entry = [0; 16];
        entry[0] = if active { 0x80 } else { 0 };
        // Linux. These values in the CHS fields mean that only the sector numbers count.
        entry[1..8].copy_from_slice(&[0xfe, 0xff, 0xff, 0x83, 0xfe, 0xff, 0xff]);
        entry[8..12].copy_from_slice(&u32::try_from(self.start)?.to_le_bytes());
        entry[12..16].copy_from_slice(&u32::try_from(self.length)?.to_le_bytes());
        Ok(entry)
    }
}

/// Writes the first sector: the code that boots the active partition, and the partition table.
fn write_table(image: &Path) -> Result<()> {
    let candidates =
        ["/usr/lib/EXTLINUX/mbr.bin", "/usr/lib/syslinux/mbr/mbr.bin"].map(PathBuf::from);
    let code = candidates.iter().find(|mount_point| mount_point.exists());
    let code = fs::read(code.context("environment: extlinux missing, run make testkit")?)?;
    let mut file = File::options().write(true).open(image)?;
    file.write_all(&code[..code.len().min(440)])?;
    file.seek(SeekFrom::Start(446))?;
    file.write_all(&BOOT.entry(true)?)?;
    file.write_all(&ROOT.entry(false)?)?;
    file.seek(SeekFrom::Start(510))?;
    file.write_all(&[0x55, 0xaa])?;
    Ok(())
}
