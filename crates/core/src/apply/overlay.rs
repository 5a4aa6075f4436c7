//! The tree with the change played into it: later decisions see what earlier ones have done.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Style;
use super::error::ApplyError;
use super::node::{Content, Meta, Node, Source};
use super::resolve;
use super::tree::Tree;

/// A tree and what is to change in it.
pub(super) struct View<'a> {
    tree: &'a dyn Tree,
    /// How the host does things.
    pub(super) style: Style,
    /// What is there, as far as it was asked.
    found: HashMap<String, Node>,
    /// What is to be there.
    changes: HashMap<String, Node>,
    /// The changed paths, in the order of their first change.
    order: Vec<String>,
    /// The changed paths by folder.
    by_folder: BTreeMap<String, BTreeSet<String>>,
    resolved: HashMap<String, String>,
    /// Folders that were made on the way, since the last [`View::take_made`].
    made: Vec<String>,
    /// How often something was changed.
    changed: usize,
    /// Whether links name units by `/lib`, once that was asked.
    pub(super) names_lib: Option<bool>,
}

impl<'a> View<'a> {
    pub(super) fn new(tree: &'a dyn Tree, style: Style) -> Self {
        Self {
            tree,
            style,
            found: HashMap::new(),
            changes: HashMap::new(),
            order: Vec::new(),
            by_folder: BTreeMap::new(),
            resolved: HashMap::new(),
            made: Vec::new(),
            changed: 0,
            names_lib: None,
        }
    }

    /// Where a path really lies.
    pub(super) fn resolve(&mut self, path: &str) -> Result<String, ApplyError> {
        let (tree, found) = (self.tree, &mut self.found);
        let trusted = self.style.owner.uid;
        resolve::resolve(path, &mut self.resolved, trusted, &mut |path| look(tree, found, path))
    }

    /// What is there before the change.
    pub(super) fn before(&mut self, path: &str) -> Result<Node, ApplyError> {
        look(self.tree, &mut self.found, path)
    }

    /// What is there with the change so far.
    pub(super) fn node(&mut self, path: &str) -> Result<Node, ApplyError> {
        match self.changes.get(path) {
            Some(node) => Ok(node.clone()),
            None => self.before(path),
        }
    }

    /// Whether anything is there.
    pub(super) fn exists(&mut self, path: &str) -> Result<bool, ApplyError> {
        Ok(!self.node(path)?.is_absent())
    }

    /// The bytes of a file with the change so far; none where there is no file.
    pub(super) fn bytes(&mut self, path: &str) -> Result<Option<Vec<u8>>, ApplyError> {
        match self.node(path)? {
            Node::File { content, .. } => match content.source {
                Source::Bytes(bytes) => Ok(Some(bytes)),
                Source::Path(from) => Ok(Some(self.tree.bytes(&from)?)),
                Source::Unknown => Ok(None),
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
    pub(super) fn names(&mut self, folder: &str) -> Result<Vec<String>, ApplyError> {
        let mut names: BTreeSet<String> = self.tree.names(folder)?.into_iter().collect();
        for path in self.by_folder.get(folder).into_iter().flatten() {
            let name = path.rsplit('/').next().unwrap_or_default();
            if self.changes.get(path).is_some_and(Node::is_absent) {
                names.remove(name);
            } else {
                names.insert(name.to_owned());
            }
        }
        Ok(names.into_iter().collect())
    }

    /// From now on this is there.
    pub(super) fn set(&mut self, path: &str, node: Node) {
        self.changed += 1;
        if self.changes.insert(path.to_owned(), node).is_none() {
            self.order.push(path.to_owned());
            let folder = folder_of(path).to_owned();
            self.by_folder.entry(folder).or_default().insert(path.to_owned());
        }
    }

    /// From now on this is there, and the folders that it needs.
    pub(super) fn put(&mut self, path: &str, node: Node) -> Result<(), ApplyError> {
        let meta = Meta { mode: 0o755, owner: self.style.owner };
        self.make_folders(path, meta)?;
        let found = self.node(path)?;
        if matches!(found, Node::Folder { .. } | Node::Special) {
            return Err(ApplyError::InTheWay {
                path: path.to_owned(),
                found: found.kind(),
                wanted: node.kind(),
            });
        }
        self.set(path, node);
        Ok(())
    }

    /// Makes the folders above a path that are not there.
    pub(super) fn make_folders(&mut self, path: &str, meta: Meta) -> Result<(), ApplyError> {
        let folder = folder_of(path);
        if folder == "/" || matches!(self.changes.get(folder), Some(Node::Folder { .. })) {
            return Ok(());
        }
        match self.node(folder)? {
            Node::Folder { .. } => Ok(()),
            Node::Absent => {
                let folder = folder.to_owned();
                self.make_folders(&folder, meta)?;
                // A folder that was there and has just been emptied comes back as it was.
                let before = self.before(&folder)?;
                let is_new = before.is_absent();
                self.set(&folder, if is_new { Node::Folder { meta } } else { before });
                if is_new {
                    self.made.push(folder);
                }
                Ok(())
            }
            found => Err(ApplyError::NotAFolder {
                path: path.to_owned(),
                folder: folder.to_owned(),
                found: found.kind(),
            }),
        }
    }

    /// A file of the daemon's own: root's, for everyone to read.
    pub(super) fn write(&mut self, path: &str, bytes: Vec<u8>) -> Result<(), ApplyError> {
        let path = self.resolve(path)?;
        let meta = Meta { mode: 0o644, owner: self.style.owner };
        self.put(&path, Node::File { meta, content: Content::new(bytes) })
    }

    /// How often something was changed: the same number, the same view.
    pub(super) fn changed(&self) -> usize {
        self.changed
    }

    /// The folders that were made since this was last asked.
    pub(super) fn take_made(&mut self) -> Vec<String> {
        std::mem::take(&mut self.made)
    }

    /// The paths that were changed, in order, with what was there and what is to be there.
    pub(super) fn into_changes(mut self) -> Result<Vec<(String, Node, Node)>, ApplyError> {
        let mut all = Vec::new();
        for path in std::mem::take(&mut self.order) {
            let from = self.before(&path)?;
            if let Some(to) = self.changes.remove(&path)
                && from != to
            {
                all.push((path, from, to));
            }
        }
        Ok(all)
    }
}

fn look(
    tree: &dyn Tree,
    found: &mut HashMap<String, Node>,
    path: &str,
) -> Result<Node, ApplyError> {
    if let Some(node) = found.get(path) {
        return Ok(node.clone());
    }
    // Nothing is below what is no folder.
    let folder = folder_of(path);
    if folder != "/" && !matches!(look(tree, found, folder)?, Node::Folder { .. }) {
        return Ok(Node::Absent);
    }
    let node = tree.node(path)?;
    found.insert(path.to_owned(), node.clone());
    Ok(node)
}

/// The folder of a path.
pub(super) fn folder_of(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(at) => &path[..at],
    }
}
