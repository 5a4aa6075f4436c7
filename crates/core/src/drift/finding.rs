//! One difference: what it is called, how grave it is, and in which words it is told.

use std::fmt;

use serde::Serialize;

use super::go_mode;
use crate::apply::{Enablement, Managed, Node, Part};

/// Where a masked unit points.
const NULL: &str = "/dev/null";

/// What kind of difference it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Other bytes.
    Content,
    /// Other permissions.
    Mode,
    /// Another owner.
    Owner,
    /// Nothing is there.
    Missing,
    /// A link is there instead of a file.
    Link,
    /// A folder, device, socket or pipe is there instead of a file.
    Type,
    /// A unit was masked by hand.
    Masked,
    /// A unit that is to be masked is not.
    Unmasked,
    /// Something is there, and nothing should be.
    Unexpected,
    /// A unit is enabled or disabled, and should not be.
    Enablement,
    /// It cannot be said what is there.
    Unreadable,
}

/// How grave a difference is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// The machine is not as its config says: it is degraded.
    Drift,
    /// The real daemon does not look at this: it is told, and the machine stays as it is.
    Warning,
}

/// A difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Where.
    pub path: String,
    /// What kind of difference it is.
    pub kind: Kind,
    /// How grave it is.
    pub severity: Severity,
    /// What should be there: permissions, owner, size and digest, never contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Node>,
    /// What is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<Node>,
    /// In words.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl Finding {
    /// What is wrong with a path, if anything is.
    pub(super) fn of(managed: &Managed) -> Option<Self> {
        let Managed { path, part, wanted, found, .. } = managed;
        let found = match found {
            Ok(found) => found,
            Err(problem) => {
                let message = format!("could not stat file {path:?}: {problem}");
                return Some(Self::new(path, Kind::Unreadable, message, wanted, None));
            }
        };
        let (kind, message) = match wanted {
            Node::File { .. } => file(path, *part, wanted, found)?,
            Node::Link { .. } => mask(path, wanted, found)?,
            _ => nothing(path, *part, found)?,
        };
        Some(Self::new(path, kind, message, wanted, Some(found)))
    }

    /// A unit that is not enabled as it should be.
    pub(super) fn enablement(of: Enablement) -> Self {
        let Enablement { unit, path, wanted, found } = of;
        let kind = if found == "masked" { Kind::Masked } else { Kind::Enablement };
        let message =
            format!("unit {unit:?} expected enabled={wanted}, but systemd reports {found:?}");
        Self { path, kind, severity: Severity::Drift, expected: None, found: None, message }
    }

    fn new(path: &str, kind: Kind, message: String, wanted: &Node, found: Option<&Node>) -> Self {
        let severity = match kind {
            Kind::Owner | Kind::Unexpected => Severity::Warning,
            _ => Severity::Drift,
        };
        let (path, expected, found) = (path.to_owned(), Some(wanted.clone()), found.cloned());
        Self { path, kind, severity, expected, found, message }
    }
}

/// A file should be there.
fn file(path: &str, part: Part, wanted: &Node, found: &Node) -> Option<(Kind, String)> {
    let mode_mismatch = || {
        let (wanted, found) = (go_mode::text(wanted), go_mode::text(found));
        format!("mode mismatch for file: {path:?}; expected: {wanted}; received: {found}")
    };
    let (Node::File { meta, content }, Node::File { meta: has, content: holds }) = (wanted, found)
    else {
        let kind = match found {
            Node::Absent => {
                let text = "no such file or directory";
                return Some((
                    Kind::Missing,
                    format!("could not stat file {path:?}: lstat {path}: {text}"),
                ));
            }
            Node::Link { target, .. } if part == Part::Unit && target == NULL => Kind::Masked,
            Node::Link { .. } => Kind::Link,
            _ => Kind::Type,
        };
        return Some((kind, mode_mismatch()));
    };
    if meta.mode != has.mode {
        return Some((Kind::Mode, mode_mismatch()));
    }
    if content != holds {
        return Some((Kind::Content, format!("content mismatch for file {path:?}")));
    }
    (meta.owner != has.owner).then(|| {
        let (wanted, found) = (meta.owner, has.owner);
        let (wanted, found) = ((wanted.uid, wanted.gid), (found.uid, found.gid));
        let message = format!(
            "owner mismatch for file {path:?}; expected: {}:{}; received: {}:{}",
            wanted.0, wanted.1, found.0, found.1
        );
        (Kind::Owner, message)
    })
}

/// A unit should be masked.
fn mask(path: &str, wanted: &Node, found: &Node) -> Option<(Kind, String)> {
    if wanted == found {
        return None;
    }
    let received = match found {
        Node::Absent => {
            let problem = "no such file or directory";
            let message = format!(
                "state validation: error while evaluation symlink for path {path:?}: lstat {path}: {problem}"
            );
            return Some((Kind::Unmasked, message));
        }
        Node::Link { target, .. } if target == NULL => {
            return Some((Kind::Owner, format!("owner mismatch for link {path:?}")));
        }
        Node::Link { target, .. } => target,
        _ => path,
    };
    let message = format!(
        "state validation: invalid unit masked setting. path: {path:?}; expected: {NULL}; received: {received}"
    );
    Some((Kind::Unmasked, message))
}

/// Nothing should be there: a drop-in without contents, or a unit that is not to be masked.
fn nothing(path: &str, part: Part, found: &Node) -> Option<(Kind, String)> {
    match found {
        Node::Absent => None,
        // The real daemon used to write them.
        Node::File { content, .. } if part == Part::DropIn && content.size == 0 => None,
        Node::File { .. } if part == Part::DropIn => {
            Some((Kind::Content, format!("content mismatch for file {path:?}")))
        }
        Node::Link { target, .. } if part == Part::Unit && target == NULL => Some((
            Kind::Masked,
            format!(
                "state validation: invalid unit masked setting. path: {path:?}; expected: not masked; received: {NULL}"
            ),
        )),
        other => {
            Some((Kind::Unexpected, format!("unexpected file {path:?}: this is {}", other.kind())))
        }
    }
}
