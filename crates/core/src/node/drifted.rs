//! What a machine reports about drift on its Node: the paths that others have changed.
//!
//! The daemon writes it, the commands about rollouts show it. A Node is written by its machine, so a
//! reader trusts neither its size nor its characters.

use serde::{Deserialize, Serialize};

/// How many paths a Node names.
const MAX_DRIFTED_PATHS: usize = 10;
/// The maximum length of a path or of a name of a process, in characters.
const MAX_TEXT_CHARS: usize = 256;
/// The maximum length of the annotation that is read at all.
const MAX_ANNOTATION_BYTES: usize = 16 * 1024;

/// What kind of difference it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DriftKind {
    /// The contents differ.
    Content,
    /// The permissions differ.
    Mode,
    /// The owner differs.
    Owner,
    /// Nothing is there.
    Missing,
    /// A link is there instead of a file.
    Link,
    /// A directory, device, socket or pipe is there instead of a file.
    Type,
    /// A unit was masked by hand.
    Masked,
    /// A unit should be masked and is not.
    Unmasked,
    /// Something is there that should not be.
    Unexpected,
    /// The enablement of a unit differs.
    Enablement,
    /// The path cannot be read.
    Unreadable,
}

/// A path that someone else has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftedPath {
    /// The path.
    pub path: String,
    /// What kind of difference it is.
    pub kind: DriftKind,
    /// The process that changed it, where the kernel reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The value of the annotation: `None` if nothing has drifted.
#[must_use]
pub fn format_drifted(paths: &[DriftedPath]) -> Option<String> {
    let named: Vec<DriftedPath> =
        paths.iter().take(MAX_DRIFTED_PATHS).cloned().map(bounded).collect();
    // Paths are text: they can always be written as JSON.
    (!named.is_empty()).then(|| serde_json::to_string(&named).unwrap_or_default())
}

/// The paths in the annotation. A value that no daemon writes names none.
#[must_use]
pub fn parse_drifted(text: &str) -> Vec<DriftedPath> {
    if text.len() > MAX_ANNOTATION_BYTES {
        return Vec::new();
    }
    let paths: Vec<DriftedPath> = serde_json::from_str(text).unwrap_or_default();
    paths.into_iter().take(MAX_DRIFTED_PATHS).map(bounded).collect()
}

fn bounded(drifted: DriftedPath) -> DriftedPath {
    let DriftedPath { path, kind, by } = drifted;
    DriftedPath { path: printable(&path), kind, by: by.as_deref().map(printable) }
}

/// A bounded text without control characters, which could rewrite the terminal of a reader.
fn printable(text: &str) -> String {
    let shown = |letter: char| if letter.is_control() { '\u{fffd}' } else { letter };
    text.chars().take(MAX_TEXT_CHARS).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drifted(path: &str, by: Option<&str>) -> DriftedPath {
        DriftedPath { path: path.to_owned(), kind: DriftKind::Content, by: by.map(str::to_owned) }
    }

    #[test]
    fn an_annotation_is_read_as_it_was_written() {
        let paths = [drifted("/etc/motd", Some("vim (pid 812)")), drifted("/etc/issue", None)];
        let text = format_drifted(&paths).unwrap();
        assert_eq!(
            text,
            r#"[{"path":"/etc/motd","kind":"content","by":"vim (pid 812)"},{"path":"/etc/issue","kind":"content"}]"#
        );
        assert_eq!(parse_drifted(&text), paths);
        assert_eq!(format_drifted(&[]), None);
    }

    #[test]
    fn a_hostile_annotation_is_bounded_and_printable() {
        for text in ["", "null", "[1]", "{}", r#"[{"path":"/a","kind":"other"}]"#] {
            assert_eq!(parse_drifted(text), [], "{text}");
        }
        let many = vec![drifted(&"ä\u{1b}[2J".repeat(60), Some("\n")); 40];
        let found = parse_drifted(&serde_json::to_string(&many[..12]).unwrap());
        assert_eq!(found.len(), MAX_DRIFTED_PATHS);
        for one in &found {
            assert!(one.path.chars().count() <= MAX_TEXT_CHARS);
            assert!(!one.path.chars().any(char::is_control));
            assert_eq!(one.by.as_deref(), Some("\u{fffd}"));
        }
        assert_eq!(parse_drifted(&serde_json::to_string(&vec![many; 2]).unwrap()), []);
        assert_eq!(parse_drifted(&" ".repeat(MAX_ANNOTATION_BYTES + 1)), []);
    }
}
