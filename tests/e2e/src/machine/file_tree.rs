//! A digest of a file tree: kind, mode, owner and contents of everything in it.

use crate::cache::hex;
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Directories whose contents belong to the kernel or to one boot.
const VOLATILE_DIRECTORIES: [&str; 6] = ["/proc", "/sys", "/dev", "/run", "/tmp", "/sysroot"];

/// The entries below a directory: each path with a line that describes it completely.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileTree(BTreeMap<String, String>);

impl FileTree {
    /// Reads `dir` below `root` without following links.
    pub fn read(root: &Path, dir: &Path) -> Result<Self> {
        let mut found = Self::default();
        found.add(root, &dir.to_string_lossy())?;
        Ok(found)
    }

    fn add(&mut self, root: &Path, path: &str) -> Result<()> {
        let target = root.join(path.trim_start_matches('/'));
        let entries = fs::read_dir(&target).with_context(|| format!("read directory {path}"))?;
        for entry in entries.flatten() {
            let below = format!("{}/{}", path.trim_end_matches('/'), entry.file_name().display());
            let Ok(meta) = entry.path().symlink_metadata() else { continue };
            let kind = meta.file_type();
            let what = if kind.is_symlink() {
                format!("link to {}", fs::read_link(entry.path())?.display())
            } else if kind.is_dir() {
                "directory".to_owned()
            } else if kind.is_file() {
                // A running machine may remove a file between the two calls.
                let Ok(bytes) = fs::read(entry.path()) else { continue };
                format!("file {} {}", bytes.len(), hex(&Sha256::digest(&bytes)))
            } else if kind.is_socket() || kind.is_fifo() {
                continue;
            } else {
                format!("device {:x}", meta.rdev())
            };
            let (mode, uid, gid) = (meta.mode() & 0o7777, meta.uid(), meta.gid());
            self.0.insert(below.clone(), format!("{mode:04o} {uid}:{gid} {what}"));
            if kind.is_dir() && !VOLATILE_DIRECTORIES.contains(&below.as_str()) {
                self.add(root, &below)?;
            }
        }
        Ok(())
    }

    /// The description of one path.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The paths that `later` has added (`+`), removed (`-`) or changed (`~`), in order.
    pub fn changes(&self, later: &Self) -> Vec<String> {
        let mut paths: Vec<_> = self.0.keys().chain(later.0.keys()).collect();
        paths.sort();
        paths.dedup();
        let sign = |path: &&String| match (self.0.get(*path), later.0.get(*path)) {
            (None, _) => Some('+'),
            (_, None) => Some('-'),
            (old, new) if old != new => Some('~'),
            _ => None,
        };
        paths.iter().filter_map(|path| sign(path).map(|sign| format!("{sign}{path}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn changes_of_contents_mode_and_links_are_seen() {
        let root = std::env::temp_dir().join(format!("machinist-tree-{}", std::process::id()));
        let file = |name: &str| root.join("etc").join(name);
        fs::create_dir_all(root.join("etc")).unwrap();
        for name in ["same", "text", "mode", "gone"] {
            fs::write(file(name), name).unwrap();
        }
        symlink("same", file("link")).unwrap();
        let read = || FileTree::read(&root, Path::new("/etc")).unwrap();
        let before = read();
        fs::write(file("text"), "other").unwrap();
        fs::set_permissions(file("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(file("gone")).unwrap();
        fs::remove_file(file("link")).unwrap();
        symlink("text", file("link")).unwrap();
        fs::write(file("new"), "").unwrap();
        let changes = before.changes(&read());
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(changes, ["-/etc/gone", "~/etc/link", "~/etc/mode", "+/etc/new", "~/etc/text"]);
    }
}
