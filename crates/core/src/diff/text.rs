//! Line diffs of text, with some context.

use serde::{Deserialize, Serialize};
use similar::{ChangeTag, TextDiff};

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiffLineKind {
    /// Unchanged.
    Context,
    /// Added.
    Added,
    /// Removed.
    Removed,
    /// Omitted lines.
    Gap,
}

/// A line of a diff, without its newline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffLine {
    /// The kind.
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
