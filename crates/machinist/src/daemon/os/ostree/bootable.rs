//! Turns a tree of files into an operating system that ostree can boot.

use std::io;

use anyhow::{Result, bail};
use machinist_core::os::layers::LayerPaths;
use rustix::fs::FileType;

use super::tree::{EntryMeta, UnpackTree};

/// Directories that belong to the machine or to its current boot. What an image has in them is dropped.
const MACHINE_DIRECTORIES: [&str; 8] =
    ["boot", "dev", "proc", "run", "sys", "sysroot", "tmp", "var"];

/// Where the init process may be.
const INIT_PATHS: [&str; 4] =
    ["usr/lib/systemd/systemd", "lib/systemd/systemd", "usr/sbin/init", "sbin/init"];

/// Prepares a tree for booting, or returns why that is not possible. Returns the space it needs in /boot.
pub(super) fn make_bootable(tree: &mut UnpackTree) -> Result<u64> {
    for path in MACHINE_DIRECTORIES {
        if tree.is_type(path, FileType::Directory)? {
            tree.whiteout_contents(path, &LayerPaths::default())?;
        } else {
            let mode = if path == "tmp" { 0o1777 } else { 0o755 };
            tree.put_directory(path, &EntryMeta { mode, ..EntryMeta::default() })?;
        }
    }
    if !tree.is_type("ostree", FileType::Symlink)? {
        tree.put_symlink("ostree", b"sysroot/ostree", &EntryMeta::default())?;
    }
    if !tree.is_type("usr/etc", FileType::Directory)? {
        bail!("the image has no directory /etc: it is not that of an operating system");
    }
    if !INIT_PATHS
        .iter()
        .try_fold(false, |found, path| is_executable_entry(tree, path).map(|is| found || is))?
    {
        bail!("the image has no systemd and no /sbin/init: it is not that of an operating system");
    }
    let kernel = kernel_directory(tree)?;
    let parts = ["vmlinuz", "initramfs.img"];
    parts.iter().try_fold(0, |sum, part| Ok(sum + tree.size(&format!("{kernel}/{part}"))?))
}

fn is_executable_entry(tree: &mut UnpackTree, path: &str) -> io::Result<bool> {
    Ok(tree.is_type(path, FileType::RegularFile)? || tree.is_type(path, FileType::Symlink)?)
}

/// The directory of the kernel. There has to be exactly one.
fn kernel_directory(tree: &mut UnpackTree) -> Result<String> {
    const MODULES: &str = "usr/lib/modules";
    let mut kernels = Vec::new();
    for version in tree.list(MODULES)? {
        if tree.is_type(&format!("{MODULES}/{version}/vmlinuz"), FileType::RegularFile)? {
            kernels.push(version);
        }
    }
    match kernels.as_slice() {
        [one] => Ok(format!("{MODULES}/{one}")),
        [] => bail!("the image has no kernel: there is no /usr/lib/modules/VERSION/vmlinuz in it"),
        many => bail!("the image has more than one kernel: {}: leave one", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(paths: &[&str]) -> Result<(Vec<String>, u64)> {
        let directory = tempfile::tempdir().unwrap();
        for path in paths {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "12345").unwrap();
        }
        let mut tree = UnpackTree::open(directory.path()).unwrap();
        let boot_size = make_bootable(&mut tree)?;
        let paths = MACHINE_DIRECTORIES.into_iter().chain([""]);
        let mut left: Vec<_> = paths.flat_map(|path| tree.list(path).unwrap()).collect();
        left.sort();
        Ok((left, boot_size))
    }

    #[test]
    fn a_tree_needs_a_kernel_an_init_process_and_etc() {
        let system = ["usr/lib/modules/6.1/vmlinuz", "usr/lib/modules/6.1/initramfs.img"];
        let whole = [&system[..], &["usr/sbin/init", "usr/etc/passwd", "var/lib/x", "sysroot/y"]];
        let (left, boot_size) = finished(&whole.concat()).unwrap();
        let expected =
            ["boot", "dev", "ostree", "proc", "run", "sys", "sysroot", "tmp", "usr", "var"];
        assert_eq!((left, boot_size), (expected.map(str::to_owned).to_vec(), 10));
        let other = ["usr/lib/modules/6.2/vmlinuz", "usr/sbin/init", "usr/etc/passwd"];
        for (paths, reason) in [
            (vec!["usr/etc/passwd", "usr/sbin/init"], "no kernel"),
            ([&system[..], &other].concat(), "more than one kernel: 6."),
            ([&system[..], &["usr/etc/passwd"]].concat(), "no systemd"),
            ([&system[..], &["usr/sbin/init"]].concat(), "no directory /etc"),
        ] {
            let error = finished(&paths).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
