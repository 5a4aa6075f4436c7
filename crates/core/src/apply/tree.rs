//! The tree of a machine, as a plan reads it.

use std::collections::{BTreeMap, BTreeSet};

use super::fs_node::{ContentSource, FileContent, FileMeta, FileOwner, FsNode};

/// A path of the tree cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {path}: {problem}")]
pub struct FsTreeError {
    /// The path.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

/// Reads a tree. No path has links in its parents; the last component is never followed.
pub trait FsTree {
    /// What is at a path.
    fn node(&self, path: &str) -> Result<FsNode, FsTreeError>;
    /// The contents of a file of moderate size.
    fn read(&self, path: &str) -> Result<Vec<u8>, FsTreeError>;
    /// The entries of a directory; empty if there is no directory.
    fn entries(&self, directory: &str) -> Result<Vec<String>, FsTreeError>;
}

/// A tree in memory.
#[derive(Debug, Clone, Default)]
pub struct InMemoryTree {
    nodes: BTreeMap<String, FsNode>,
}

impl InMemoryTree {
    /// A tree with an empty `/etc`.
    #[must_use]
    pub fn new() -> Self {
        let mut tree = Self::default();
        tree.put(
            "/etc",
            FsNode::Directory { meta: FileMeta { mode: 0o755, owner: FileOwner::default() } },
        );
        tree
    }

    /// Puts a node at a path, and creates its parents.
    pub fn put(&mut self, path: &str, node: FsNode) {
        let meta = FileMeta { mode: 0o755, owner: FileOwner::default() };
        for (at, _) in path.match_indices('/').skip(1) {
            self.nodes.entry(path[..at].to_owned()).or_insert(FsNode::Directory { meta });
        }
        match node {
            FsNode::Absent => self.nodes.remove(path),
            node => self.nodes.insert(path.to_owned(), node),
        };
    }

    /// Puts a file of root there, readable by everyone.
    pub fn add_file(&mut self, path: &str, bytes: &[u8]) {
        let meta = FileMeta { mode: 0o644, owner: FileOwner::default() };
        self.put(path, FsNode::File { meta, content: FileContent::new(bytes.to_vec()) });
    }

    /// Puts a link of root there.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn add_link(&mut self, path: &str, target: &str) {
        self.put(path, FsNode::Link { target: target.to_owned(), owner: FileOwner::default() });
    }

    /// All nodes, by path.
    #[must_use]
    pub fn nodes(&self) -> &BTreeMap<String, FsNode> {
        &self.nodes
    }

    /// Performs a plan.
    pub fn apply(&mut self, plan: &super::ApplyPlan) {
        let before = self.clone();
        for step in &plan.steps {
            let mut node = step.to.clone();
            if let FsNode::File { content, .. } = &mut node
                && let ContentSource::Path(from) = &content.source
            {
                let bytes = before.read(from).unwrap_or_default();
                content.source = ContentSource::Bytes(bytes.into());
            }
            self.put(&step.path, node);
        }
    }
}

impl FsTree for InMemoryTree {
    fn node(&self, path: &str) -> Result<FsNode, FsTreeError> {
        let root =
            FsNode::Directory { meta: FileMeta { mode: 0o755, owner: FileOwner::default() } };
        let found = if path == "/" { Some(&root) } else { self.nodes.get(path) };
        Ok(found.cloned().unwrap_or(FsNode::Absent))
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, FsTreeError> {
        match self.nodes.get(path) {
            Some(FsNode::File {
                content: FileContent { source: ContentSource::Bytes(bytes), .. },
                ..
            }) => Ok(bytes.to_vec()),
            _ => Err(FsTreeError { path: path.to_owned(), problem: "no file".to_owned() }),
        }
    }

    fn entries(&self, directory: &str) -> Result<Vec<String>, FsTreeError> {
        let prefix = format!("{}/", directory.trim_end_matches('/'));
        let below = self.nodes.range(prefix.clone()..);
        let names: BTreeSet<&str> = below
            .map_while(|(path, _)| path.strip_prefix(&prefix))
            .filter(|rest| !rest.contains('/'))
            .collect();
        Ok(names.into_iter().map(str::to_owned).collect())
    }
}
