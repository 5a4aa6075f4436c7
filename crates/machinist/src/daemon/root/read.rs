//! Reads a root, and sets permissions and owners in it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd;

use machinist_core::apply::{
    ContentSource, FileContent, FileMeta, FileOwner, FsNode, FsTree, FsTreeError,
};
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, openat,
    readlinkat, statat,
};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::HostRoot;

/// The maximum size of a file that a plan reads as a whole.
const MAX_FILE_SIZE: u64 = 64 << 20;

impl HostRoot {
    /// What is at a path.
    pub(in super::super) fn look(&self, path: &str) -> io::Result<FsNode> {
        let (directory, name) = match self.open_parent(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FsNode::Absent),
            place => place?,
        };
        let stat = match statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(FsNode::Absent),
            stat => stat?,
        };
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => FsNode::Directory { meta: meta(&stat) },
            FileType::Symlink => {
                let target = readlinkat(&*directory, name, Vec::new())?;
                let target = target.into_string().map_err(|_| {
                    io::Error::new(io::ErrorKind::InvalidData, "a link whose target is not text")
                })?;
                FsNode::Link { target, owner: meta(&stat).owner }
            }
            FileType::RegularFile => {
                let mut file = self.read_only(path)?;
                let meta = meta(&fstat(&file)?);
                let (size, sha256) = digest(&mut file)?;
                let source = ContentSource::Path(path.to_owned());
                FsNode::File { meta, content: FileContent { size, sha256, source } }
            }
            _ => FsNode::Special,
        })
    }

    /// Opens a file for reading.
    pub(in super::super) fn read_only(&self, path: &str) -> io::Result<File> {
        let (directory, name) = self.open_parent(path)?;
        // A pipe that replaced the file must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&*directory, name, flags, Mode::empty())?.into())
    }
}

impl FsTree for HostRoot {
    fn node(&self, path: &str) -> Result<FsNode, FsTreeError> {
        self.look(path).map_err(|error| unreadable(path, &error))
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, FsTreeError> {
        let read = || {
            let mut bytes = Vec::new();
            self.read_only(path)?.take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > MAX_FILE_SIZE {
                return Err(io::Error::other("it is larger than such a file can be"));
            }
            Ok(bytes)
        };
        read().map_err(|error| unreadable(path, &error))
    }

    fn entries(&self, directory: &str) -> Result<Vec<String>, FsTreeError> {
        let read = || {
            let fd = match self.open_directory(directory) {
                Ok(fd) => fd,
                Err(error)
                    if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory]
                        .contains(&error.kind()) =>
                {
                    return Ok(Vec::new());
                }
                Err(error) => return Err(error),
            };
            let mut names = Vec::new();
            for entry in Dir::read_from(fd)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy();
                if name != "." && name != ".." {
                    names.push(name.into_owned());
                }
            }
            Ok(names)
        };
        read().map_err(|error| unreadable(directory, &error))
    }
}

fn unreadable(path: &str, error: &io::Error) -> FsTreeError {
    FsTreeError { path: path.to_owned(), problem: error.to_string() }
}

fn meta(stat: &Stat) -> FileMeta {
    FileMeta {
        mode: stat.st_mode & 0o7777,
        owner: FileOwner { uid: stat.st_uid, gid: stat.st_gid },
    }
}

fn digest(file: &mut File) -> io::Result<(u64, String)> {
    let (mut hasher, mut size) = (Sha256::new(), 0);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        size += count as u64;
    }
    let sha256 = machinist_core::hex::hex(&hasher.finalize());
    Ok((size, sha256))
}

/// Sets owner and permissions if they differ.
pub(in super::super) fn set_meta(fd: impl AsFd, wanted: FileMeta) -> io::Result<()> {
    let found = meta(&fstat(&fd)?);
    if found.owner != wanted.owner {
        let (uid, gid) = (Uid::from_raw(wanted.owner.uid), Gid::from_raw(wanted.owner.gid));
        fchown(&fd, Some(uid), Some(gid))?;
    }
    // After the owner: chown clears the set-user-ID bits.
    if found.mode != wanted.mode || found.owner != wanted.owner {
        fchmod(&fd, Mode::from_raw_mode(wanted.mode))?;
    }
    Ok(())
}
