//! Removes what a first boot has left on a machine: units, the binary, and what the server added to the
//! config. Called by `leave`.

use std::fs::File;
use std::io::{self, Read as _};

use anyhow::{Context as _, Result};
use machinist_core::api::names::path::{
    DAEMON_DIR, ENCAPSULATED, ENCAPSULATED_BACKUP, ETCD_INDEX, KUBECONFIG, SERVED_CONFIG,
};
use machinist_core::apply::FsTree as _;
use machinist_core::hex::hex;
use machinist_core::serve::{enrol, first_boot};
use rustix::io::Errno;
use sha2::{Digest as _, Sha512};

use super::super::root::{HostRoot, split};
use super::super::transaction::{FsAction, FsChange};
use crate::fault_injection;

/// The directory of unit files.
const UNIT_DIR: &str = "/etc/systemd/system";
/// Where the binary may be: image-based hosts keep the first directory at the second path.
const BINARY_PATHS: [&str; 2] = [first_boot::BINARY_PATH, "/var/usrlocal/bin/machinist"];

/// Removes everything. Returns what was removed.
pub(super) fn remove_first_boot(root: &HostRoot) -> Result<Vec<FsChange>> {
    let unit = format!("{UNIT_DIR}/{}", first_boot::FIRST_BOOT_UNIT);
    // The etcd member that the machine may become later has another index.
    let (mut paths, mut directories) = (vec![ETCD_INDEX.to_owned()], vec![DAEMON_DIR.to_owned()]);
    if exists(root, &unit)? {
        directories
            .extend(first_boot::UNIT_LINKS.map(|link| format!("{UNIT_DIR}/{}", split(link).0)));
        // Created for the kubeconfig, which was removed when the machine joined.
        directories.push(split(KUBECONFIG).0.to_owned());
        let text = root.read(&unit).with_context(|| format!("cannot read {unit}"))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        paths.extend(first_boot::UNIT_LINKS.map(|link| format!("{UNIT_DIR}/{link}")));
        paths.extend([ENCAPSULATED, ENCAPSULATED_BACKUP, SERVED_CONFIG].map(str::to_owned));
        paths.extend(installed_binary(root, first_boot::binary_hash(&text))?);
        // It lists what else to remove, so it is removed last.
        paths.push(unit);
    }
    let enrolment = format!("{UNIT_DIR}/{}", enrol::ENROLMENT_UNIT);
    if exists(root, &enrolment)? {
        directories.extend([
            format!("{UNIT_DIR}/{}", split(enrol::ENROLMENT_UNIT_LINK).0),
            enrol::ENROLMENT_DIR.to_owned(),
        ]);
        paths.push(format!("{UNIT_DIR}/{}", enrol::ENROLMENT_UNIT_LINK));
        paths.extend(enrol::ENROLMENT_FILES.map(str::to_owned));
        paths.push(enrolment);
    }
    let mut changes = Vec::new();
    for path in paths {
        if exists(root, &path)? {
            root.remove(&path)
                .and_then(|()| root.fsync_directory(split(&path).0))
                .with_context(|| format!("cannot remove {path}"))?;
            fault_injection::point();
            changes.push(FsChange { action: FsAction::Remove, path });
        }
    }
    for directory in directories {
        // Its contents belong to someone else.
        let _ = root.remove_directory(&directory);
    }
    Ok(changes)
}

/// Removes the binary that came with the first boot. One that was put there later stays, and so does that of
/// a package, which is elsewhere.
fn installed_binary(root: &HostRoot, hash: Option<&str>) -> Result<Option<String>> {
    let Some(hash) = hash else { return Ok(None) };
    for path in BINARY_PATHS {
        if !exists(root, path)? {
            continue;
        }
        let file = root.read_only(path);
        let found = file.and_then(sha512).with_context(|| format!("cannot read {path}"))?;
        if found == hash {
            return Ok(Some(path.to_owned()));
        }
        tracing::warn!(path, "keeping a binary that did not come with the first boot");
    }
    Ok(None)
}

/// Whether something is at a path. A parent may be a link, which leads to another of these paths.
fn exists(root: &HostRoot, path: &str) -> Result<bool> {
    match root.exists(path) {
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Ok(false),
        found => found.with_context(|| format!("cannot look at {path}")),
    }
}

fn sha512(mut file: File) -> io::Result<String> {
    let (mut hash, mut part) = (Sha512::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut part)? {
            0 => return Ok(hex(&hash.finalize())),
            length => hash.update(&part[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A machine after its first boot, with this binary.
    fn machine_after_first_boot(binary: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let hash = hex(&Sha512::digest(b"binary"));
        let unit = format!("[Unit]\n[X-Machinist]\nProgramHash=sha512-{hash}\n"); // words: keep
        write(root, "/etc/systemd/system/machinist-firstboot.service", &unit);
        write(root, "/etc/systemd/system/machinist-enrol.service", "");
        for link in first_boot::UNIT_LINKS.iter().chain([&enrol::ENROLMENT_UNIT_LINK]) {
            let link = root.join("etc/systemd/system").join(link);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink("../x", link).unwrap();
        }
        for path in [ENCAPSULATED_BACKUP, SERVED_CONFIG].iter().chain(&enrol::ENROLMENT_FILES) {
            write(root, path, "x");
        }
        write(root, "/var/usrlocal/bin/machinist", binary);
        fs::create_dir_all(root.join("usr")).unwrap();
        symlink("../var/usrlocal", root.join("usr/local")).unwrap();
        fs::create_dir_all(root.join("etc/kubernetes")).unwrap();
        write(root, "/etc/hosts", "others");
        directory
    }

    fn files(root: &Path) -> Vec<String> {
        let (mut found, mut directories) = (Vec::new(), vec![root.to_owned()]);
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                match entry.file_type().unwrap().is_dir() {
                    true => directories.push(entry.path()),
                    false => {
                        let path = entry.path();
                        found.push(path.strip_prefix(root).unwrap().display().to_string());
                    }
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn nothing_of_a_first_boot_stays() {
        let directory = machine_after_first_boot("binary");
        let changes = remove_first_boot(&HostRoot::open(directory.path()).unwrap()).unwrap();
        assert_eq!(files(directory.path()), ["etc/hosts", "usr/local"]);
        for gone in ["machinist", "kubernetes", "systemd/system/kubelet.service.requires"] {
            assert!(!directory.path().join("etc").join(gone).exists(), "{gone}");
        }
        let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
        assert!(paths.contains(&"/var/usrlocal/bin/machinist"), "{paths:?}");
    }

    #[test]
    fn a_binary_from_elsewhere_stays() {
        let directory = machine_after_first_boot("another");
        remove_first_boot(&HostRoot::open(directory.path()).unwrap()).unwrap();
        assert_eq!(
            files(directory.path()),
            ["etc/hosts", "usr/local", "var/usrlocal/bin/machinist"]
        );
        // A machine that did not boot this way has its binary from elsewhere.
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "/etc/hosts", "others");
        write(directory.path(), "/usr/local/bin/machinist", "binary");
        assert!(remove_first_boot(&HostRoot::open(directory.path()).unwrap()).unwrap().is_empty());
        assert!(directory.path().join("usr/local/bin/machinist").exists());
    }
}
