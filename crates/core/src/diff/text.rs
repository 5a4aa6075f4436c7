//! Line diffs of text, with a little of what stays around them.

use similar::{ChangeTag, TextDiff};

/// What happens to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffLineKind {
    /// It stays.
    Context,
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Lines left out.
    Gap,
}

/// A line of a diff, without its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffLine {
    /// What happens to it.
    pub kind: DiffLineKind,
    /// The line.
    pub text: String,
}

/// The lines that differ between two texts, with `context` lines around them.
#[must_use]
pub fn line_diff(old: &str, new: &str, context: usize) -> Vec<DiffLine> {
    let diff = TextDiff::from_lines(old, new);
    let mut lines = Vec::new();
    for (index, group) in diff.grouped_ops(context).iter().enumerate() {
        if index > 0 {
            lines.push(DiffLine { kind: DiffLineKind::Gap, text: "…".to_owned() });
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let kind = match change.tag() {
                ChangeTag::Equal => DiffLineKind::Context,
                ChangeTag::Insert => DiffLineKind::Added,
                ChangeTag::Delete => DiffLineKind::Removed,
            };
            let text = change.value().trim_end_matches(['\n', '\r']).to_owned();
            lines.push(DiffLine { kind, text });
        }
    }
    lines
}
