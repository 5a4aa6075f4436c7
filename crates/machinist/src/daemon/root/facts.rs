//! What the kernel reports about paths: attributes, mounts, read-only file systems.

use machinist_core::apply::PathFacts;
use rustix::fs::{
    AtFlags, FileType, StatVfsMountFlags, StatxAttributes, StatxFlags, fstatvfs, statx,
};

use super::{HostRoot, split};

impl HostRoot {
    /// What the kernel reports about a path; `None` if nothing is there, or if it cannot say.
    pub(in super::super) fn facts(&self, path: &str) -> Option<PathFacts> {
        let (directory, name) = self.open_parent(path).ok()?;
        let found = statx(&*directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE).ok()?;
        let is_directory = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory;
        if is_directory {
            return self.directory_facts(path);
        }
        Some(PathFacts { is_read_only: false, ..attributes(found.stx_attributes) })
    }

    /// What the kernel reports about a directory.
    fn directory_facts(&self, path: &str) -> Option<PathFacts> {
        let directory = self.open_directory(path).ok()?;
        let found = statx(&directory, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE).ok()?;
        // A bind mount can be read-only on a file system that is not.
        let mount = fstatvfs(&directory).ok()?;
        let is_read_only = mount.f_flag.contains(StatVfsMountFlags::RDONLY);
        Some(PathFacts { is_read_only, ..attributes(found.stx_attributes) })
    }

    /// The nearest directory above a path that exists, and what the kernel reports about it.
    pub(in super::super) fn nearest_directory<'a>(&self, path: &'a str) -> (&'a str, PathFacts) {
        let mut directory = split(path).0;
        loop {
            match self.directory_facts(directory) {
                Some(facts) => return (directory, facts),
                None if directory == "/" => return (directory, PathFacts::default()),
                None => directory = split(directory).0,
            }
        }
    }
}

fn attributes(found: StatxAttributes) -> PathFacts {
    PathFacts {
        is_immutable: found.contains(StatxAttributes::IMMUTABLE),
        is_append_only: found.contains(StatxAttributes::APPEND),
        is_mount_point: found.contains(StatxAttributes::MOUNT_ROOT),
        is_read_only: false,
    }
}
