//! Reads a root, and sets permissions and owners in it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::AsFd;

use machinist_core::apply::{
    ContentSource, FileContent, FileMeta, FileOwner, FsNode, FsTree, FsTreeError,
};
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Uid, fchmod, fchown, fstat, openat,
    readlinkat, seek, statat,
};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::{HostRoot, progress};

/// The maximum size of a file that a plan reads as a whole.
pub(in super::super) const MAX_FILE_SIZE: u64 = 64 << 20;
/// The maximum size of a file whose digest is that of all its bytes. It is far above what a config can have.
const MAX_DENSE_FILE: u64 = 1 << 30;

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
    let length = file.metadata()?.len();
    if length > MAX_DENSE_FILE {
        return sparse_digest(file, length);
    }
    let mut hasher = Sha256::new();
    let size = hash_part(file, u64::MAX, &mut hasher)?;
    let sha256 = machinist_core::hex::hex(&hasher.finalize());
    Ok((size, sha256))
}

/// Reads a part of a file from where it stands. Returns how much there was of it.
fn hash_part(file: &mut File, limit: u64, hasher: &mut Sha256) -> io::Result<u64> {
    let mut part = file.take(limit);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = part.read(&mut buffer)?;
        if count == 0 {
            return Ok(limit - part.limit());
        }
        hasher.update(&buffer[..count]);
        progress::tick();
    }
}

/// The digest of a file that is larger than any that a config can have: of its data without the holes. A user who may
/// write a file can make it larger than a disk in an instant, and reading that would take the daemon days.
fn sparse_digest(file: &mut File, length: u64) -> io::Result<(u64, String)> {
    let mut hasher = Sha256::new();
    hasher.update(b"sparse");
    hasher.update(length.to_le_bytes());
    let mut offset = 0;
    loop {
        let begin = match seek(&*file, SeekFrom::Data(offset)) {
            Ok(begin) => begin,
            // The rest is a hole.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(&*file, SeekFrom::Hole(begin))?;
        hasher.update(begin.to_le_bytes());
        file.seek(io::SeekFrom::Start(begin))?;
        offset = begin + hash_part(file, end - begin, &mut hasher)?.max(1);
    }
    Ok((length, machinist_core::hex::hex(&hasher.finalize())))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn a_file_as_large_as_the_file_system_allows_is_read_in_no_time() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("etc")).unwrap();
        let root = HostRoot::open(directory.path()).unwrap();
        let file = File::create(directory.path().join("etc/large")).unwrap();
        let of = || match root.look("/etc/large").unwrap() {
            FsNode::File { content, .. } => (content.size, content.sha256),
            other => panic!("{other:?}"),
        };
        file.set_len(MAX_DENSE_FILE + 1).unwrap();
        let empty = of();
        assert_eq!(empty.0, MAX_DENSE_FILE + 1);
        file.write_all_at(b"data", 1 << 29).unwrap();
        let changed = of();
        assert_ne!(changed, empty);
        assert_eq!(of(), changed);
        file.set_len(4 << 40).unwrap();
        assert_eq!(of().0, 4 << 40);
        // What a config can have is read as a whole.
        file.set_len(0).unwrap();
        file.write_all_at(b"foo\n", 0).unwrap();
        let sha256 = "b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c";
        assert_eq!(of(), (4, sha256.to_owned()));
    }
}
