//! Reading a root, and setting permissions and owners in it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd;

use machinist_core::apply::{Content, Meta, Node, Owner, Source, Tree, TreeError};
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, openat,
    readlinkat, statat,
};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::Root;

/// Files that a plan reads as a whole are no larger than this.
const LARGEST: u64 = 64 << 20;

impl Root {
    /// What is at a path.
    pub(in super::super) fn look(&self, path: &str) -> io::Result<Node> {
        let (folder, name) = match self.place(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Node::Absent),
            place => place?,
        };
        let stat = match statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(Node::Absent),
            stat => stat?,
        };
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Node::Folder { meta: meta(&stat) },
            FileType::Symlink => {
                let target = readlinkat(&*folder, name, Vec::new())?;
                let target = target.into_string().map_err(|_| {
                    io::Error::new(io::ErrorKind::InvalidData, "a link whose target is not text")
                })?;
                Node::Link { target, owner: meta(&stat).owner }
            }
            FileType::RegularFile => {
                let mut file = self.read_only(path)?;
                let meta = meta(&fstat(&file)?);
                let (size, sha256) = digest(&mut file)?;
                let source = Source::Path(path.to_owned());
                Node::File { meta, content: Content { size, sha256, source } }
            }
            _ => Node::Special,
        })
    }

    /// Opens a file for reading.
    pub(in super::super) fn read_only(&self, path: &str) -> io::Result<File> {
        let (folder, name) = self.place(path)?;
        // A pipe that came in between must not hold us up.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&*folder, name, flags, Mode::empty())?.into())
    }
}

impl Tree for Root {
    fn node(&self, path: &str) -> Result<Node, TreeError> {
        self.look(path).map_err(|error| unreadable(path, &error))
    }

    fn bytes(&self, path: &str) -> Result<Vec<u8>, TreeError> {
        let read = || {
            let mut bytes = Vec::new();
            self.read_only(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > LARGEST {
                return Err(io::Error::other("it is larger than such a file can be"));
            }
            Ok(bytes)
        };
        read().map_err(|error| unreadable(path, &error))
    }

    fn names(&self, folder: &str) -> Result<Vec<String>, TreeError> {
        let read = || {
            let fd = match self.folder(folder) {
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
        read().map_err(|error| unreadable(folder, &error))
    }
}

fn unreadable(path: &str, error: &io::Error) -> TreeError {
    TreeError { path: path.to_owned(), problem: error.to_string() }
}

fn meta(stat: &Stat) -> Meta {
    Meta { mode: stat.st_mode & 0o7777, owner: Owner { uid: stat.st_uid, gid: stat.st_gid } }
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
    let sha256 = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((size, sha256))
}

/// Sets owner and permissions, as far as they are not so already.
pub(in super::super) fn set_meta(fd: impl AsFd, wanted: Meta) -> io::Result<()> {
    let found = meta(&fstat(&fd)?);
    if found.owner != wanted.owner {
        let (uid, gid) = (Uid::from_raw(wanted.owner.uid), Gid::from_raw(wanted.owner.gid));
        fchown(&fd, Some(uid), Some(gid))?;
    }
    // After the owner: giving a file away takes permissions off it.
    if found.mode != wanted.mode || found.owner != wanted.owner {
        fchmod(&fd, Mode::from_raw_mode(wanted.mode))?;
    }
    Ok(())
}
