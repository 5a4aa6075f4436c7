//! Prepares a step: the new file under a temporary name, and a second name for the old one.

use std::fs::File;
use std::io::{self, Write as _};

use machinist_core::apply::{ContentSource, FileContent, FileMeta, FileOwner, FsNode};
use rustix::fs::{
    AtFlags, Gid, Timespec, Timestamps, Uid, XattrFlags, chownat, fgetxattr, flistxattr,
    fremovexattr, fsetxattr, fstat, futimens, linkat, statat, symlinkat,
};
use rustix::io::Errno;

use super::super::journal::Journal;
use super::super::root::{HostRoot, set_meta, split};

/// Extended attributes that a new file takes over from the one it replaces, because no config can set them:
/// the SELinux label, the access ACL, and those of users. Not file capabilities: new contents must not
/// inherit privileges.
fn is_kept(attribute: &[u8]) -> bool {
    attribute == b"security.selinux" || attribute == ACCESS_ACL || attribute.starts_with(b"user.")
}

/// The extended attribute with the ACL of a file.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// Writes the new file of a step and keeps the old one, both in the directory of the path.
pub(super) fn prepare(root: &HostRoot, journal: &Journal, index: usize) -> io::Result<()> {
    let step = &journal.plan.steps[index];
    match &step.to {
        FsNode::File { meta, content } => {
            let path = journal.new_path(root, index);
            let replaced = matches!(step.from, FsNode::File { .. }).then_some(step.path.as_str());
            write_new(root, &path, *meta, content, replaced)?;
        }
        FsNode::Link { target, owner } => {
            let path = journal.new_path(root, index);
            root.remove(&path)?;
            write_symlink(root, &path, target, *owner)?;
        }
        FsNode::Absent | FsNode::Directory { .. } | FsNode::Special => {}
    }
    if matches!(step.from, FsNode::File { .. } | FsNode::Link { .. }) {
        keep_old(root, &step.path, &journal.old_path(root, index), &step.from)?;
    }
    Ok(())
}

/// Syncs the contents of the new file.
pub(super) fn fsync(root: &HostRoot, journal: &Journal, index: usize) -> io::Result<()> {
    let step = &journal.plan.steps[index];
    match &step.to {
        FsNode::File { .. } => root.read_only(&journal.new_path(root, index))?.sync_all(),
        _ => Ok(()),
    }
}

fn write_new(
    root: &HostRoot,
    path: &str,
    meta: FileMeta,
    content: &FileContent,
    replaced: Option<&str>,
) -> io::Result<()> {
    let mut file = root.create(path)?;
    match &content.source {
        ContentSource::Bytes(bytes) => {
            file.write_all(bytes)?;
            if let Some(replaced) = replaced {
                copy_xattrs(&root.read_only(replaced)?, &file, is_kept)?;
            }
        }
        ContentSource::Path(from) => copy(&mut root.read_only(from)?, &mut file)?,
        ContentSource::Unknown => return Err(io::Error::other("its contents are not known")),
    }
    set_meta(&file, meta)
}

/// Copies contents, extended attributes and times.
fn copy(from: &mut File, to: &mut File) -> io::Result<()> {
    io::copy(from, to)?;
    copy_xattrs(from, to, |_| true)?;
    let stat = fstat(&*from)?;
    let time = |seconds: i64, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or_default(),
    };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    Ok(futimens(&*to, &times)?)
}

/// Copies extended attributes. The permissions are set afterwards: they limit what an ACL grants.
///
/// A new file has the default ACL of its directory. It must not grant what the file that it replaces did not.
fn copy_xattrs(from: &File, to: &File, is_kept: impl Fn(&[u8]) -> bool) -> io::Result<()> {
    match fremovexattr(to, ACCESS_ACL) {
        Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
        Err(error) => return Err(error.into()),
    }
    let mut names = vec![0; 64 << 10];
    let length = match flistxattr(from, &mut names) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    for name in names.filter(|name| is_kept(name)) {
        let mut value = vec![0; 64 << 10];
        let length = fgetxattr(from, name, &mut value)?;
        fsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

fn write_symlink(root: &HostRoot, path: &str, target: &str, owner: FileOwner) -> io::Result<()> {
    let (directory, name) = root.open_parent(path)?;
    symlinkat(target, &*directory, name)?;
    let found = statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if (found.st_uid, found.st_gid) != (owner.uid, owner.gid) {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        chownat(&*directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// Gives a file a second name, or copies it where the file system has no hard links.
fn keep_old(root: &HostRoot, path: &str, old: &str, node: &FsNode) -> io::Result<()> {
    root.remove(old)?;
    let (directory, name) = root.open_parent(path)?;
    match linkat(&*directory, name, &*directory, split(old).1, AtFlags::empty()) {
        Err(Errno::PERM | Errno::NOTSUP | Errno::MLINK | Errno::NOSYS) => {}
        done => return Ok(done?),
    }
    match node {
        FsNode::File { meta, .. } => {
            let mut copied = root.create(old)?;
            copy(&mut root.read_only(path)?, &mut copied)?;
            set_meta(&copied, *meta)?;
            copied.sync_all()
        }
        FsNode::Link { target, owner } => write_symlink(root, old, target, *owner),
        _ => Ok(()),
    }
}
