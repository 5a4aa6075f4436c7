//! The tree with the changes so far: later decisions see what earlier ones did.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::error::ApplyError;
use super::fs_node::{ContentSource, FileContent, FileMeta, FsNode};
use super::resolve;
use super::tree::FsTree;
use super::{HostDefaults, PRIVATE_DIRECTORY_MODE, PRIVATE_FILE_MODE};
use crate::api::names::path::DAEMON_DIR;

/// A tree and the changes to it.
pub(super) struct TreeOverlay<'a> {
    tree: &'a dyn FsTree,
    /// Owner and date for new files.
    pub(super) defaults: HostDefaults,
    /// What is there, as far as it was read.
    found: HashMap<String, FsNode>,
    /// What will be there.
    changes: HashMap<String, FsNode>,
    /// The changed paths, in the order of their first change.
    order: Vec<String>,
    /// The changed paths by directory.
    changes_by_dir: BTreeMap<String, BTreeSet<String>>,
    resolved: HashMap<String, String>,
    /// Directories that were created since the last call of `take_created_directories`.
    created_directories: Vec<String>,
    /// The number of changes.
    change_count: usize,
    /// Whether links name units by `/lib`; `None` until it is determined.
    pub(super) links_use_lib: Option<bool>,
}

impl<'a> TreeOverlay<'a> {
    pub(super) fn new(tree: &'a dyn FsTree, defaults: HostDefaults) -> Self {
        Self {
            tree,
            defaults,
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

    /// Resolves the links in a path.
    pub(super) fn resolve(&mut self, path: &str) -> Result<String, ApplyError> {
        let (tree, found) = (self.tree, &mut self.found);
        let trusted = self.defaults.owner.uid;
        resolve::resolve(path, &mut self.resolved, trusted, &mut |path| inspect(tree, found, path))
    }

    /// What is there before the changes.
    pub(super) fn original_node(&mut self, path: &str) -> Result<FsNode, ApplyError> {
        inspect(self.tree, &mut self.found, path)
    }

    /// What is there with the changes so far.
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

    /// The contents of a file with the changes so far; `None` if there is no file.
    pub(super) fn bytes(&mut self, path: &str) -> Result<Option<Vec<u8>>, ApplyError> {
        match self.node(path)? {
            FsNode::File { content, .. } => match content.source {
                ContentSource::Bytes(bytes) => Ok(Some(Arc::unwrap_or_clone(bytes))),
                ContentSource::Path(from) => Ok(Some(self.tree.read(&from)?)),
                ContentSource::Unknown => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The text of a file; `None` if there is no file.
    pub(super) fn text(&mut self, path: &str) -> Result<Option<String>, ApplyError> {
        let bytes = self.bytes(path)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// The entries of a directory with the changes so far, sorted.
    pub(super) fn entries(&mut self, directory: &str) -> Result<Vec<String>, ApplyError> {
        let mut names: BTreeSet<String> = self.tree.entries(directory)?.into_iter().collect();
        for path in self.changes_by_dir.get(directory).into_iter().flatten() {
            let name = path.rsplit('/').next().unwrap_or_default();
            if self.changes.get(path).is_some_and(FsNode::is_absent) {
                names.remove(name);
            } else {
                names.insert(name.to_owned());
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Changes a path.
    pub(super) fn set(&mut self, path: &str, node: FsNode) {
        self.change_count += 1;
        if self.changes.insert(path.to_owned(), node).is_none() {
            self.order.push(path.to_owned());
            let directory = parent_dir(path).to_owned();
            self.changes_by_dir.entry(directory).or_default().insert(path.to_owned());
        }
    }

    /// Changes a path, and creates its parents.
    pub(super) fn set_with_parents(&mut self, path: &str, node: FsNode) -> Result<(), ApplyError> {
        let meta = FileMeta { mode: 0o755, owner: self.defaults.owner };
        self.create_parent_directories(path, meta)?;
        self.check_settable(path, &node)?;
        self.set(path, node);
        Ok(())
    }

    /// Refuses to replace what is not ours to replace.
    pub(super) fn check_settable(&mut self, path: &str, node: &FsNode) -> Result<(), ApplyError> {
        let found = self.node(path)?;
        if matches!(found, FsNode::Directory { .. } | FsNode::Special) {
            let (found, wanted) = (found.kind(), node.kind());
            return Err(ApplyError::Obstructed { path: path.to_owned(), found, wanted });
        }
        Ok(())
    }

    /// Creates the missing parents of a path.
    pub(super) fn create_parent_directories(
        &mut self,
        path: &str,
        meta: FileMeta,
    ) -> Result<(), ApplyError> {
        let directory = parent_dir(path);
        if directory == "/" || matches!(self.changes.get(directory), Some(FsNode::Directory { .. }))
        {
            return Ok(());
        }
        match self.node(directory)? {
            FsNode::Directory { .. } => Ok(()),
            FsNode::Absent => {
                let directory = directory.to_owned();
                self.create_parent_directories(&directory, meta)?;
                // A directory that was emptied a moment ago is kept as it was.
                let before = self.original_node(&directory)?;
                let is_new = before.is_absent();
                let is_private = Path::new(&directory).starts_with(DAEMON_DIR);
                let mode = if is_private { PRIVATE_DIRECTORY_MODE } else { meta.mode };
                let meta = FileMeta { mode, ..meta };
                self.set(&directory, if is_new { FsNode::Directory { meta } } else { before });
                if is_new {
                    self.created_directories.push(directory);
                }
                Ok(())
            }
            found => Err(ApplyError::NotADirectory {
                path: path.to_owned(),
                directory: directory.to_owned(),
                found: found.kind(),
            }),
        }
    }

    /// Writes a file of the daemon: owned by root, readable by nobody else.
    pub(super) fn write(&mut self, path: &str, bytes: Vec<u8>) -> Result<(), ApplyError> {
        let path = self.resolve(path)?;
        let meta = FileMeta { mode: PRIVATE_FILE_MODE, owner: self.defaults.owner };
        self.set_with_parents(&path, FsNode::File { meta, content: FileContent::new(bytes) })
    }

    /// The number of changes. If it is the same, the view is the same.
    pub(super) fn change_count(&self) -> usize {
        self.change_count
    }

    /// The directories that were created since the last call.
    pub(super) fn take_created_directories(&mut self) -> Vec<String> {
        std::mem::take(&mut self.created_directories)
    }

    /// The changed paths, in order, with what is there and what will be there.
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
    // Nothing is below what is not a directory.
    let directory = parent_dir(path);
    if directory != "/" && !matches!(inspect(tree, found, directory)?, FsNode::Directory { .. }) {
        return Ok(FsNode::Absent);
    }
    let node = tree.node(path)?;
    found.insert(path.to_owned(), node.clone());
    Ok(node)
}

/// The parent of a path.
pub(super) fn parent_dir(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(at) => &path[..at],
    }
}
