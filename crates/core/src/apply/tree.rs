//! The tree of a machine, as a plan asks about it.

use std::collections::{BTreeMap, BTreeSet};

use super::node::{Content, Meta, Node, Owner, Source};

/// Why the tree does not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {path}: {problem}")]
pub struct TreeError {
    /// The path.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

/// Questions about a tree. No path has a link on its way; the last part is never followed.
pub trait Tree {
    /// What is at a path.
    fn node(&self, path: &str) -> Result<Node, TreeError>;
    /// The bytes of a file of modest size.
    fn bytes(&self, path: &str) -> Result<Vec<u8>, TreeError>;
    /// What is in a folder; nothing where there is no folder.
    fn names(&self, folder: &str) -> Result<Vec<String>, TreeError>;
}

/// A tree in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryTree {
    nodes: BTreeMap<String, Node>,
}

impl MemoryTree {
    /// A tree with an empty `/etc`.
    #[must_use]
    pub fn new() -> Self {
        let mut tree = Self::default();
        tree.put("/etc", Node::Folder { meta: Meta { mode: 0o755, owner: Owner::default() } });
        tree
    }

    /// Puts something somewhere, with the folders on the way.
    pub fn put(&mut self, path: &str, node: Node) {
        let meta = Meta { mode: 0o755, owner: Owner::default() };
        for (at, _) in path.match_indices('/').skip(1) {
            self.nodes.entry(path[..at].to_owned()).or_insert(Node::Folder { meta });
        }
        match node {
            Node::Absent => self.nodes.remove(path),
            node => self.nodes.insert(path.to_owned(), node),
        };
    }

    /// Puts a file of root's there, for everyone to read.
    pub fn file(&mut self, path: &str, bytes: &[u8]) {
        let meta = Meta { mode: 0o644, owner: Owner::default() };
        self.put(path, Node::File { meta, content: Content::new(bytes.to_vec()) });
    }

    /// Puts a link of root's there.
    pub fn link(&mut self, path: &str, target: &str) {
        self.put(path, Node::Link { target: target.to_owned(), owner: Owner::default() });
    }

    /// Everything, by path.
    #[must_use]
    pub fn nodes(&self) -> &BTreeMap<String, Node> {
        &self.nodes
    }

    /// Does what a plan says.
    pub fn apply(&mut self, plan: &super::Plan) {
        let before = self.clone();
        for step in &plan.steps {
            let mut node = step.to.clone();
            if let Node::File { content, .. } = &mut node
                && let Source::Path(from) = &content.source
            {
                let bytes = before.bytes(from).unwrap_or_default();
                content.source = Source::Bytes(bytes);
            }
            self.put(&step.path, node);
        }
    }
}

impl Tree for MemoryTree {
    fn node(&self, path: &str) -> Result<Node, TreeError> {
        let root = Node::Folder { meta: Meta { mode: 0o755, owner: Owner::default() } };
        let found = if path == "/" { Some(&root) } else { self.nodes.get(path) };
        Ok(found.cloned().unwrap_or(Node::Absent))
    }

    fn bytes(&self, path: &str) -> Result<Vec<u8>, TreeError> {
        match self.nodes.get(path) {
            Some(Node::File { content: Content { source: Source::Bytes(bytes), .. }, .. }) => {
                Ok(bytes.clone())
            }
            _ => Err(TreeError { path: path.to_owned(), problem: "no file".to_owned() }),
        }
    }

    fn names(&self, folder: &str) -> Result<Vec<String>, TreeError> {
        let prefix = format!("{}/", folder.trim_end_matches('/'));
        let below = self.nodes.range(prefix.clone()..);
        let names: BTreeSet<&str> = below
            .map_while(|(path, _)| path.strip_prefix(&prefix))
            .filter(|rest| !rest.contains('/'))
            .collect();
        Ok(names.into_iter().map(str::to_owned).collect())
    }
}
