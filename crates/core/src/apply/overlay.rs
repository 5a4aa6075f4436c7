//! The tree with the change played into it: later decisions see what earlier ones have done.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::HostDefaults;
use super::error::ApplyError;
use super::fs_node::{ContentSource, FileContent, FileMeta, FsNode};
use super::resolve;
use super::tree::FsTree;

/// A tree and what is to change in it.
pub(super) struct TreeOverlay<'a> {
    tree: &'a dyn FsTree,
    /// How the host does things.
    pub(super) style: HostDefaults,
    /// What is there, as far as it was asked.
    found: HashMap<String, FsNode>,
    /// What is to be there.
    changes: HashMap<String, FsNode>,
    /// The changed paths, in the order of their first change.
    order: Vec<String>,
    /// The changed paths by folder.
    changes_by_dir: BTreeMap<String, BTreeSet<String>>,
    resolved: HashMap<String, String>,
    /// Folders that were made on the way, since the last [`View::take_made`].
    created_directories: Vec<String>,
    /// How often something was changed.
    change_count: usize,
    /// Whether links name units by `/lib`, once that was asked.
    pub(super) links_use_lib: Option<bool>,
}

impl<'a> TreeOverlay<'a> {
    pub(super) fn new(tree: &'a dyn FsTree, style: HostDefaults) -> Self {
        Self {
            tree,
            style,
            found: HashMap::new(),
            changes: HashMap::new(),
            order: Vec::new(),
            changes_by_dir: BTreeMap::new(),
            resolved: HashMap::new(),
            created_directories: Vec::new(),
            change_count: 0,
            links_use_lib: None,
        }
    }

    /// Where a path really lies.
    pub(super) fn resolve(&mut self, path: &str) -> Result<String, ApplyError> {
        let (tree, found) = (self.tree, &mut self.found);
        let trusted = self.style.owner.uid;
        resolve::resolve(path, &mut self.resolved, trusted, &mut |path| inspect(tree, found, path))
    }

    /// What is there before the change.
    pub(super) fn original_node(&mut self, path: &str) -> Result<FsNode, ApplyError> {
        inspect(self.tree, &mut self.found, path)
    }

    /// What is there with the change so far.
    pub(super) fn node(&mut self, path: &str) -> Result<FsNode, ApplyError> {
        match self.changes.get(path) {
            Some(node) => Ok(node.clone()),
            None => self.original_node(path),
        }
    }

    /// Whether anything is there.
    pub(super) fn exists(&mut self, path: &str) -> Result<bool, ApplyError> {
        Ok(!self.node(path)?.is_absent())
    }

    /// The bytes of a file with the change so far; none where there is no file.
    pub(super) fn bytes(&mut self, path: &str) -> Result<Option<Vec<u8>>, ApplyError> {
        match self.node(path)? {
            FsNode::File { content, .. } => match content.source {
                ContentSource::Bytes(bytes) => Ok(Some(bytes)),
                ContentSource::Path(from) => Ok(Some(self.tree.read(&from)?)),
                ContentSource::Unknown => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The text of a file; none where there is no file.
    pub(super) fn text(&mut self, path: &str) -> Result<Option<String>, ApplyError> {
        let bytes = self.bytes(path)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// What is in a folder with the change so far, sorted.
    pub(super) fn entries(&mut self, folder: &str) -> Result<Vec<String>, ApplyError> {
        let mut names: BTreeSet<String> = self.tree.entries(folder)?.into_iter().collect();
        for path in self.changes_by_dir.get(folder).into_iter().flatten() {
            let name = path.rsplit('/').next().unwrap_or_default();
            if self.changes.get(path).is_some_and(FsNode::is_absent) {
                names.remove(name);
            } else {
                names.insert(name.to_owned());
            }
        }
        Ok(names.into_iter().collect())
    }

    /// From now on this is there.
    pub(super) fn set(&mut self, path: &str, node: FsNode) {
        self.change_count += 1;
        if self.changes.insert(path.to_owned(), node).is_none() {
            self.order.push(path.to_owned());
            let folder = parent_dir(path).to_owned();
            self.changes_by_dir.entry(folder).or_default().insert(path.to_owned());
        }
    }

    /// From now on this is there, and the folders that it needs.
    pub(super) fn set_with_parents(&mut self, path: &str, node: FsNode) -> Result<(), ApplyError> {
        let meta = FileMeta { mode: 0o755, owner: self.style.owner };
        self.create_parent_directories(path, meta)?;
        let found = self.node(path)?;
        if matches!(found, FsNode::Directory { .. } | FsNode::Special) {
            return Err(ApplyError::Obstructed {
                path: path.to_owned(),
                found: found.kind(),
                wanted: node.kind(),
            });
        }
        self.set(path, node);
        Ok(())
    }

    /// Makes the folders above a path that are not there.
    pub(super) fn create_parent_directories(
        &mut self,
        path: &str,
        meta: FileMeta,
    ) -> Result<(), ApplyError> {
        let folder = parent_dir(path);
        if folder == "/" || matches!(self.changes.get(folder), Some(FsNode::Directory { .. })) {
            return Ok(());
        }
        match self.node(folder)? {
            FsNode::Directory { .. } => Ok(()),
            FsNode::Absent => {
                let folder = folder.to_owned();
                self.create_parent_directories(&folder, meta)?;
                // A folder that was there and has just been emptied comes back as it was.
                let before = self.original_node(&folder)?;
                let is_new = before.is_absent();
                self.set(&folder, if is_new { FsNode::Directory { meta } } else { before });
                if is_new {
                    self.created_directories.push(folder);
                }
                Ok(())
            }
            found => Err(ApplyError::NotADirectory {
                path: path.to_owned(),
                folder: folder.to_owned(),
                found: found.kind(),
            }),
        }
    }

    /// A file of the daemon's own: root's, for everyone to read.
    pub(super) fn write(&mut self, path: &str, bytes: Vec<u8>) -> Result<(), ApplyError> {
        let path = self.resolve(path)?;
        let meta = FileMeta { mode: 0o644, owner: self.style.owner };
        self.set_with_parents(&path, FsNode::File { meta, content: FileContent::new(bytes) })
    }

    /// How often something was changed: the same number, the same view.
    pub(super) fn change_count(&self) -> usize {
        self.change_count
    }

    /// The folders that were made since this was last asked.
    pub(super) fn take_created_directories(&mut self) -> Vec<String> {
        std::mem::take(&mut self.created_directories)
    }

    /// The paths that were changed, in order, with what was there and what is to be there.
    pub(super) fn into_changes(mut self) -> Result<Vec<(String, FsNode, FsNode)>, ApplyError> {
        let mut all = Vec::new();
        for path in std::mem::take(&mut self.order) {
            let from = self.original_node(&path)?;
            if let Some(to) = self.changes.remove(&path)
                && from != to
            {
                all.push((path, from, to));
            }
        }
        Ok(all)
    }
}

fn inspect(
    tree: &dyn FsTree,
    found: &mut HashMap<String, FsNode>,
    path: &str,
) -> Result<FsNode, ApplyError> {
    if let Some(node) = found.get(path) {
        return Ok(node.clone());
    }
    // Nothing is below what is no folder.
    let folder = parent_dir(path);
    if folder != "/" && !matches!(inspect(tree, found, folder)?, FsNode::Directory { .. }) {
        return Ok(FsNode::Absent);
    }
    let node = tree.node(path)?;
    found.insert(path.to_owned(), node.clone());
    Ok(node)
}

/// The folder of a path.
pub(super) fn parent_dir(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(at) => &path[..at],
    }
}
