//! Restricts what the daemon stores to root, on machines where an older version, Ignition or MCO wrote it.
//! Called when the daemon starts, by `once` and by the first boot.
//!
//! The current config, the originals and the config from the first boot hold the contents of files that only
//! root may read. Originals keep their own permissions, because those are restored with them; the directory
//! protects them.

use std::io;

use anyhow::{Context as _, Result};
use machinist_core::api::names::path::{CONTENTS_OUTSIDE_DAEMON_DIR, DAEMON_DIR};
use machinist_core::apply::{FileMeta, FsTree as _, PRIVATE_DIRECTORY_MODE, PRIVATE_FILE_MODE};
use rustix::fs::{FileType, fstat};

use super::root::{HostRoot, set_meta};

/// Restricts the daemon's directory, the files in it, and the other files with contents of configs.
pub(super) fn restrict(root: &HostRoot) -> Result<()> {
    restrict_directory(root).with_context(|| format!("cannot restrict {DAEMON_DIR} to root"))?;
    let entries = root.entries(DAEMON_DIR)?;
    let own = entries.iter().map(|name| format!("{DAEMON_DIR}/{name}"));
    for path in own.chain(CONTENTS_OUTSIDE_DAEMON_DIR.map(str::to_owned)) {
        restrict_file(root, &path).with_context(|| format!("cannot restrict {path} to root"))?;
    }
    Ok(())
}

fn restrict_directory(root: &HostRoot) -> io::Result<()> {
    let directory = match root.open_directory(DAEMON_DIR) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        directory => directory?,
    };
    let stat = fstat(&directory)?;
    set_meta(&directory, restricted(stat.st_mode, PRIVATE_DIRECTORY_MODE, stat.st_uid, stat.st_gid))
}

fn restrict_file(root: &HostRoot, path: &str) -> io::Result<()> {
    let file = match root.read_only(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // A link: what it leads to is not the daemon's.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Ok(());
        }
        file => file?,
    };
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    set_meta(&file, restricted(stat.st_mode, PRIVATE_FILE_MODE, stat.st_uid, stat.st_gid))
}

/// The same owner, and no permission that `allowed` lacks.
fn restricted(mode: u32, allowed: u32, uid: u32, gid: u32) -> FileMeta {
    FileMeta { mode: mode & allowed, owner: machinist_core::apply::FileOwner { uid, gid } }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn files_of_an_older_installation_become_private() {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path.trim_start_matches('/'));
        let mode = |path: &str| fs::metadata(at(path)).unwrap().permissions().mode() & 0o7777;
        let set = |path: &str, mode| {
            fs::set_permissions(at(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        fs::create_dir_all(at("/etc/machine-config-daemon/orig/etc")).unwrap();
        set(DAEMON_DIR, 0o755);
        let own = ["/etc/machine-config-daemon/currentconfig", "/etc/machine-config-daemon/x.json"];
        let original = "/etc/machine-config-daemon/orig/etc/a.mcdorig";
        for path in own.into_iter().chain(CONTENTS_OUTSIDE_DAEMON_DIR).chain([original, "/etc/b"]) {
            fs::write(at(path), "psk=1").unwrap();
            set(path, 0o644);
        }
        symlink(at("/etc/b"), at("/etc/machine-config-daemon/link")).unwrap();
        let root = HostRoot::open(directory.path()).unwrap();
        restrict(&root).unwrap();
        assert_eq!(mode(DAEMON_DIR), 0o700);
        for path in own.into_iter().chain(CONTENTS_OUTSIDE_DAEMON_DIR) {
            assert_eq!(mode(path), 0o600, "{path}");
        }
        assert_eq!((mode(original), mode("/etc/b")), (0o644, 0o644));
        restrict(&root).unwrap();
    }

    #[test]
    fn a_new_machine_has_nothing_to_restrict() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("etc")).unwrap();
        restrict(&HostRoot::open(directory.path()).unwrap()).unwrap();
    }
}
