//! Parts of a plan. A change of a config is made as a whole; healing and leaving go on without the paths
//! that cannot be changed.

use std::collections::BTreeSet;

use super::fs_node::FsNode;
use super::original_names::{no_original_marker, original_path, path_record};
use super::{ApplyPlan, DiskStep};

/// The names that belong to a path: itself, its original, its marker and its record.
fn names_of(path: &str) -> [String; 4] {
    [path.to_owned(), original_path(path), no_original_marker(path), path_record(path)]
}

impl ApplyPlan {
    /// The plan without some paths. Their originals stay too: they are all there is to restore them from.
    #[must_use]
    pub fn without<'a>(mut self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        let names: BTreeSet<String> = paths.into_iter().flat_map(names_of).collect();
        self.steps.retain(|step| !names.contains(&step.path));
        self
    }

    /// The part of the plan that changes one path, with the directories that it needs.
    #[must_use]
    pub fn only(mut self, path: &str) -> Self {
        let names = names_of(path);
        let is_needed = |step: &DiskStep| {
            let is_created = step.from.is_absent() && matches!(step.to, FsNode::Directory { .. });
            let above = format!("{}/", step.path);
            names.contains(&step.path)
                || (is_created && names.iter().any(|name| name.starts_with(&above)))
        };
        self.steps.retain(is_needed);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{FileContent, FileMeta, FileOwner};

    fn plan() -> ApplyPlan {
        let meta = FileMeta { mode: 0o644, owner: FileOwner { uid: 0, gid: 0 } };
        let file = || FsNode::File { meta, content: FileContent::new(Vec::new()) };
        let step =
            |path: &str, to: FsNode| DiskStep { path: path.to_owned(), from: FsNode::Absent, to };
        let steps = vec![
            step("/a", FsNode::Directory { meta }),
            step("/b", FsNode::Directory { meta }),
            step("/a/x", file()),
            step(&original_path("/a/x"), file()),
            step("/b/y", file()),
        ];
        ApplyPlan { steps, ..ApplyPlan::default() }
    }

    fn paths(plan: &ApplyPlan) -> Vec<&str> {
        plan.steps.iter().map(|step| step.path.as_str()).collect()
    }

    #[test]
    fn a_part_has_the_originals_of_its_paths() {
        assert_eq!(paths(&plan().without(["/a/x"])), ["/a", "/b", "/b/y"]);
        assert_eq!(paths(&plan().without([])), paths(&plan()));
        let original = original_path("/a/x");
        assert_eq!(paths(&plan().only("/a/x")), ["/a", "/a/x", original.as_str()]);
        assert_eq!(paths(&plan().only("/b/y")), ["/b", "/b/y"]);
    }
}
