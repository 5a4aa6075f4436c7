//! The root of the machine: reads and writes beneath it, as in a chroot, each file whole or not at all.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use machinist_core::ignition::Config;
use machinist_core::ignition::contents;
use machinist_core::ignition::schema::{File as IgnitionFile, Unit};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, fsync, mkdirat, open, openat,
    openat2, renameat, unlinkat,
};
use rustix::io::Errno;

/// No file of a config is larger than this.
const MAX_FILE_SIZE: u64 = 64 << 20;
/// Where units lie.
const UNIT_DIR: &str = "/etc/systemd/system";

/// What was done.
#[derive(Debug, Default)]
pub(super) struct WriteReport {
    /// Files.
    pub paths: Vec<String>,
    /// Units that are enabled.
    pub units: Vec<String>,
}

/// The root of a machine.
#[derive(Debug)]
pub(super) struct EnrolRoot {
    root: OwnedFd,
    path: PathBuf,
}

impl EnrolRoot {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(path, flags, Mode::empty())
            .with_context(|| format!("--root {}: cannot open this folder", path.display()))?;
        Ok(Self { root, path: path.to_owned() })
    }

    /// A file, if it is there.
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

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, path: &str) -> Result<()> {
        let (folder, name) = self.open_parent(path)?;
        match unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) => fsync(&folder).with_context(|| format!("cannot remove {path}")),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot remove {path}")),
        }
    }

    /// Writes everything that a sealed half holds.
    pub(super) fn apply(&self, config: &Config) -> Result<WriteReport> {
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
        let bytes = bytes.with_context(|| format!("the contents of {}", file.path))?;
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
        if let Some(text) = unit.contents.as_deref().filter(|text| !text.is_empty()) {
            write(format!("{UNIT_DIR}/{}", unit.name), text)?;
        }
        for dropin in unit.dropins.iter() {
            let text = dropin.contents.as_deref().unwrap_or_default();
            write(format!("{UNIT_DIR}/{}.d/{}", unit.name, dropin.name), text)?;
        }
        if unit.enabled == Some(true) {
            written.units.push(unit.name.clone());
        }
        Ok(())
    }

    /// The number of a user or group, which a config may name; the machine's own files say which it is.
    fn resolve_id(&self, file: &str, id: Option<i64>, name: Option<&str>) -> Result<u32> {
        let Some(name) = name.filter(|_| id.is_none()) else {
            return Ok(u32::try_from(id.unwrap_or_default())?);
        };
        let text = self.read(file)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        lookup_id(&text, name).with_context(|| format!("{file} knows no {name:?}"))
    }

    fn set_password(&self, user: &str, hash: &str) -> Result<()> {
        if [user, hash].iter().any(|text| text.contains([':', '\n'])) {
            bail!("the name or the password hash of user {user:?} holds a colon or a new line");
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

    /// Writes beside the place, with the right permissions from the first moment, and moves it there.
    fn write(&self, path: &str, bytes: &[u8], mode: u32, owner: Option<(u32, u32)>) -> Result<()> {
        let write = || -> Result<()> {
            let (folder, name) = self.open_parent(path)?;
            let part = format!(".{name}.machinist-part");
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            // What a power cut has left.
            let _ = unlinkat(&folder, part.as_str(), AtFlags::empty());
            let file = openat(&folder, part.as_str(), flags, Mode::from_raw_mode(0o600))?;
            let mut file = File::from(file);
            file.write_all(bytes)?;
            if let Some((user, group)) = owner {
                fchown(&file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
            }
            fchmod(&file, Mode::from_raw_mode(mode))?;
            file.sync_all()?;
            renameat(&folder, part.as_str(), &folder, name)?;
            Ok(fsync(&folder)?)
        };
        write().with_context(|| format!("cannot write {path}"))
    }

    /// The folder of a path, which is made if it is not there, and the name in it.
    fn open_parent<'a>(&self, path: &'a str) -> Result<(OwnedFd, &'a str)> {
        let (folders, name) = path.rsplit_once('/').context("the path is not absolute")?;
        if !path.starts_with('/') || matches!(name, "" | "." | "..") {
            bail!("{path:?} is no path of a file");
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = String::from("/");
        let mut folder = openat(&self.root, ".", flags, Mode::empty())?;
        for part in folders.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if part == ".." {
                bail!("{path:?} holds \"..\"");
            }
            match mkdirat(&folder, part, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            at = format!("{at}{part}/");
            // Links on the way are followed, but never out of the root.
            folder = openat2(&self.root, at.as_str(), flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
        }
        Ok((folder, name))
    }
}

/// The number that a line of `/etc/passwd` or `/etc/group` gives a name.
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
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
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
        // A link to the outside leads to a place of that name inside, which is not there.
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
