//! The root directory of the machine: reads and writes below it as in a chroot, and writes files atomically.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use machinist_core::ignition::Config;
use machinist_core::ignition::contents;
use machinist_core::ignition::schema::{File as IgnitionFile, Unit};
use machinist_core::ignition::unpacked_size::check_unpacked_sizes;
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, fsync, mkdirat, open, openat,
    openat2, renameat, unlinkat,
};
use rustix::io::Errno;

use crate::fault_injection;

/// The maximum size of a file in a config.
const MAX_FILE_SIZE: u64 = 64 << 20;
/// The directory of units.
const UNIT_DIR: &str = "/etc/systemd/system";

/// What was written.
#[derive(Debug, Default)]
pub(super) struct WriteReport {
    /// The files.
    pub paths: Vec<String>,
    /// The units that are enabled.
    pub units: Vec<String>,
}

/// The root directory of a machine.
#[derive(Debug)]
pub(super) struct EnrolRoot {
    root: OwnedFd,
    path: PathBuf,
}

impl EnrolRoot {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(path, flags, Mode::empty())
            .with_context(|| format!("--root {}: cannot open this directory", path.display()))?;
        Ok(Self { root, path: path.to_owned() })
    }

    /// The contents of a file, if it exists.
    pub(super) fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
        let file = match file {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            file => file.with_context(|| format!("cannot read {path}"))?,
        };
        let mut bytes = Vec::new();
        let read = File::from(file).take(MAX_FILE_SIZE).read_to_end(&mut bytes);
        read.with_context(|| format!("cannot read {path}"))?;
        Ok(Some(bytes))
    }

    /// Writes a file that only root may read.
    pub(super) fn write_private(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.write(path, bytes, 0o600, None)
    }

    /// Writes an empty file.
    pub(super) fn write_empty(&self, path: &str) -> Result<()> {
        self.write(path, b"", 0o644, None)
    }

    /// Removes a file, if it exists.
    pub(super) fn remove(&self, path: &str) -> Result<()> {
        let (directory, name) = self.open_parent(path)?;
        match unlinkat(&directory, name, AtFlags::empty()) {
            Ok(()) => {
                fsync(&directory).with_context(|| format!("cannot remove {path}"))?;
                fault_injection::point();
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot remove {path}")),
        }
    }

    /// Writes all files, units and passwords of a sealed config.
    pub(super) fn apply(&self, config: &Config) -> Result<WriteReport> {
        check_unpacked_sizes(config)?;
        let mut written = WriteReport::default();
        for file in config.storage.files.iter() {
            self.write_file(file)?;
            written.paths.push(file.path.clone());
        }
        for unit in config.systemd.units.iter() {
            self.write_unit(unit, &mut written)?;
        }
        for user in config.passwd.users.iter() {
            if let Some(hash) = &user.password_hash {
                self.set_password(&user.name, hash)?;
            }
        }
        Ok(written)
    }

    fn write_file(&self, file: &IgnitionFile) -> Result<()> {
        let bytes = contents::decode(&file.contents, MAX_FILE_SIZE);
        let bytes =
            bytes.with_context(|| format!("cannot decode the contents of {}", file.path))?;
        let mode = u32::try_from(file.mode.unwrap_or(0o644)).unwrap_or(0o600);
        let user = self.resolve_id("/etc/passwd", file.user.id, file.user.name.as_deref())?;
        let group = self.resolve_id("/etc/group", file.group.id, file.group.name.as_deref())?;
        self.write(&file.path, &bytes, mode, Some((user, group)))
    }

    fn write_unit(&self, unit: &Unit, written: &mut WriteReport) -> Result<()> {
        let mut write = |path: String, text: &str| -> Result<()> {
            self.write(&path, text.as_bytes(), 0o644, None)?;
            written.paths.push(path);
            Ok(())
        };
        // Ignition has masked it with a link, which must stay.
        let is_masked = unit.mask == Some(true);
        let contents = unit.contents.as_deref().filter(|text| !text.is_empty() && !is_masked);
        if let Some(text) = contents {
            write(format!("{UNIT_DIR}/{}", unit.name), text)?;
        }
        for dropin in unit.dropins.iter() {
            let text = dropin.contents.as_deref().unwrap_or_default();
            write(format!("{UNIT_DIR}/{}.d/{}", unit.name, dropin.name), text)?;
        }
        if unit.enabled == Some(true) && !is_masked {
            written.units.push(unit.name.clone());
        }
        Ok(())
    }

    /// The id of a user or group that a config names, from the files of the machine.
    fn resolve_id(&self, file: &str, id: Option<i64>, name: Option<&str>) -> Result<u32> {
        let Some(name) = name.filter(|_| id.is_none()) else {
            return Ok(u32::try_from(id.unwrap_or_default())?);
        };
        let text = self.read(file)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        lookup_id(&text, name).with_context(|| format!("{file} does not contain {name:?}"))
    }

    fn set_password(&self, user: &str, hash: &str) -> Result<()> {
        if [user, hash].iter().any(|text| text.contains([':', '\n'])) {
            bail!("the name or the password hash of user {user:?} contains a colon or a newline");
        }
        let mut command = Command::new("chpasswd");
        command.arg("-e").stdin(Stdio::piped());
        if self.path != Path::new("/") {
            command.arg("-R").arg(&self.path);
        }
        let mut child = command.spawn().context("cannot run chpasswd")?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(format!("{user}:{hash}\n").as_bytes())?;
        }
        match child.wait()?.success() {
            true => Ok(()),
            false => bail!("chpasswd did not set the password of user {user:?}"),
        }
    }

    /// Writes a temporary file, which has its final permissions from the start, and renames it.
    fn write(&self, path: &str, bytes: &[u8], mode: u32, owner: Option<(u32, u32)>) -> Result<()> {
        let write = || -> Result<()> {
            let (directory, name) = self.open_parent(path)?;
            let part = format!(".{name}.machinist-part");
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            // Left over after a power loss.
            let _ = unlinkat(&directory, part.as_str(), AtFlags::empty());
            let file = openat(&directory, part.as_str(), flags, Mode::from_raw_mode(0o600))?;
            let mut file = File::from(file);
            file.write_all(bytes)?;
            if let Some((user, group)) = owner {
                fchown(&file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
            }
            fchmod(&file, Mode::from_raw_mode(mode))?;
            file.sync_all()?;
            fault_injection::point();
            renameat(&directory, part.as_str(), &directory, name)?;
            fsync(&directory)?;
            fault_injection::point();
            Ok(())
        };
        write().with_context(|| format!("cannot write {path}"))
    }

    /// Opens the parent directory of a path, creating it if necessary; returns it with the file name.
    fn open_parent<'a>(&self, path: &'a str) -> Result<(OwnedFd, &'a str)> {
        let (directories, name) = path.rsplit_once('/').context("the path is not absolute")?;
        if !path.starts_with('/') || matches!(name, "" | "." | "..") {
            bail!("{path:?} is not the path of a file");
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = String::from("/");
        let mut directory = openat(&self.root, ".", flags, Mode::empty())?;
        for part in directories.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if part == ".." {
                bail!("{path:?} contains \"..\"");
            }
            match mkdirat(&directory, part, Mode::from_raw_mode(0o755)) {
                // The file that is written next must not be lost with its directory.
                Ok(()) => fsync(&directory)?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            at = format!("{at}{part}/");
            // Symlinks are followed, but never out of the root directory.
            directory =
                openat2(&self.root, at.as_str(), flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
        }
        Ok((directory, name))
    }
}

/// The id of a name in the text of `/etc/passwd` or `/etc/group`.
fn lookup_id(text: &str, name: &str) -> Option<u32> {
    let mut lines = text.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        let is_it = fields.next() == Some(name);
        is_it.then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn files_stay_in_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let (root, outside) = (directory.path().join("root"), directory.path().join("outside"));
        std::fs::create_dir_all(root.join("var/home")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        symlink("/var/home", root.join("home")).unwrap();
        symlink("../../outside", root.join("away")).unwrap();
        let disk = EnrolRoot::open(&root).unwrap();
        disk.write_private("/home/a/key", b"x").unwrap();
        let written = root.join("var/home/a/key");
        assert_eq!(std::fs::read(&written).unwrap(), b"x");
        assert_eq!(written.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(disk.read("/home/a/key").unwrap().as_deref(), Some(&b"x"[..]));
        // A symlink to the outside resolves inside the root, where its target does not exist.
        assert!(disk.write_private("/away/key", b"x").is_err());
        for path in ["key", "/", "/a/..", "/../a", "/a/../b"] {
            assert!(disk.write_private(path, b"x").is_err(), "{path}");
        }
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        assert_eq!(disk.read("/nothing").unwrap(), None);
        disk.remove("/home/a/key").unwrap();
        disk.remove("/home/a/key").unwrap();
        assert!(!written.exists());
    }

    #[test]
    fn numbers_of_names() {
        let text = "root:x:0:0:root:/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\nbad\n";
        assert_eq!(lookup_id(text, "core"), Some(1000));
        assert_eq!(lookup_id(text, "bad"), None);
        assert_eq!(lookup_id(text, "none"), None);
    }
}
