//! One difference between disk and config: its kind, its severity, and its description in MCO's words.

use std::fmt;

use serde::Serialize;

use super::go_mode;
use crate::apply::{EnablementMismatch, FsNode, ManagedPart, ManagedPath};
use crate::node::DriftKind;

/// Where a masked unit points.
const DEV_NULL: &str = "/dev/null";

/// How severe a difference is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DriftSeverity {
    /// The machine is degraded.
    Drift,
    /// MCO does not check this: it is reported, and the machine is not degraded.
    Warning,
}

/// A difference between disk and config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftFinding {
    /// The path.
    pub path: String,
    /// What kind of difference it is.
    pub kind: DriftKind,
    /// Its severity.
    pub severity: DriftSeverity,
    /// What should be there: permissions, owner, size and digest, never contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<FsNode>,
    /// What is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<FsNode>,
    /// The description.
    pub message: String,
}

impl fmt::Display for DriftFinding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl DriftFinding {
    /// The difference at a path, if there is one.
    pub(super) fn of(managed: &ManagedPath) -> Option<Self> {
        let ManagedPath { path, part, wanted, found, .. } = managed;
        let found = match found {
            Ok(found) => found,
            Err(problem) => {
                let message = format!("could not stat file {path:?}: {problem}");
                return Some(Self::new(path, DriftKind::Unreadable, message, wanted, None));
            }
        };
        let (kind, message) = match wanted {
            FsNode::File { .. } => file_drift(path, *part, wanted, found)?,
            FsNode::Link { .. } => mask_drift(path, wanted, found)?,
            _ => absence_drift(path, *part, found)?,
        };
        Some(Self::new(path, kind, message, wanted, Some(found)))
    }

    /// The difference of a unit's enablement.
    pub(super) fn enablement(of: EnablementMismatch) -> Self {
        let EnablementMismatch { unit, path, wanted, found } = of;
        let kind = if found == "masked" { DriftKind::Masked } else { DriftKind::Enablement };
        let message =
            format!("unit {unit:?} expected enabled={wanted}, but systemd reports {found:?}");
        Self { path, kind, severity: DriftSeverity::Drift, expected: None, found: None, message }
    }

    fn new(
        path: &str,
        kind: DriftKind,
        message: String,
        wanted: &FsNode,
        found: Option<&FsNode>,
    ) -> Self {
        let severity = match kind {
            DriftKind::Owner | DriftKind::Unexpected => DriftSeverity::Warning,
            _ => DriftSeverity::Drift,
        };
        let (path, expected, found) = (path.to_owned(), Some(wanted.clone()), found.cloned());
        Self { path, kind, severity, expected, found, message }
    }
}

/// A file should be there.
fn file_drift(
    path: &str,
    part: ManagedPart,
    wanted: &FsNode,
    found: &FsNode,
) -> Option<(DriftKind, String)> {
    let mode_mismatch = || {
        let (wanted, found) = (go_mode::text(wanted), go_mode::text(found));
        format!("mode mismatch for file: {path:?}; expected: {wanted}; received: {found}")
    };
    let (FsNode::File { meta, content }, FsNode::File { meta: has, content: holds }) =
        (wanted, found)
    else {
        let kind = match found {
            FsNode::Absent => {
                let text = "no such file or directory";
                return Some((
                    DriftKind::Missing,
                    format!("could not stat file {path:?}: lstat {path}: {text}"),
                ));
            }
            FsNode::Link { target, .. } if part == ManagedPart::Unit && target == DEV_NULL => {
                DriftKind::Masked
            }
            FsNode::Link { .. } => DriftKind::Link,
            _ => DriftKind::Type,
        };
        return Some((kind, mode_mismatch()));
    };
    if meta.mode != has.mode {
        return Some((DriftKind::Mode, mode_mismatch()));
    }
    if content != holds {
        return Some((DriftKind::Content, format!("content mismatch for file {path:?}")));
    }
    (meta.owner != has.owner).then(|| {
        let (wanted, found) = (meta.owner, has.owner);
        let (wanted, found) = ((wanted.uid, wanted.gid), (found.uid, found.gid));
        let message = format!(
            "owner mismatch for file {path:?}; expected: {}:{}; received: {}:{}",
            wanted.0, wanted.1, found.0, found.1
        );
        (DriftKind::Owner, message)
    })
}

/// A unit should be masked.
fn mask_drift(path: &str, wanted: &FsNode, found: &FsNode) -> Option<(DriftKind, String)> {
    if wanted == found {
        return None;
    }
    let received = match found {
        FsNode::Absent => {
            let problem = "no such file or directory";
            let message = format!(
                "state validation: error while evaluation symlink for path {path:?}: lstat {path}: {problem}"
            );
            return Some((DriftKind::Unmasked, message));
        }
        FsNode::Link { target, .. } if target == DEV_NULL => {
            return Some((DriftKind::Owner, format!("owner mismatch for link {path:?}")));
        }
        FsNode::Link { target, .. } => target,
        _ => path,
    };
    let message = format!(
        "state validation: invalid unit masked setting. path: {path:?}; expected: {DEV_NULL}; received: {received}"
    );
    Some((DriftKind::Unmasked, message))
}

/// Nothing should be there: a drop-in without contents, or a unit that should not be masked.
fn absence_drift(path: &str, part: ManagedPart, found: &FsNode) -> Option<(DriftKind, String)> {
    match found {
        FsNode::Absent => None,
        // Older versions of MCO wrote such files.
        FsNode::File { content, .. } if part == ManagedPart::DropIn && content.size == 0 => None,
        FsNode::File { .. } if part == ManagedPart::DropIn => {
            Some((DriftKind::Content, format!("content mismatch for file {path:?}")))
        }
        FsNode::Link { target, .. } if part == ManagedPart::Unit && target == DEV_NULL => Some((
            DriftKind::Masked,
            format!(
                "state validation: invalid unit masked setting. path: {path:?}; expected: not masked; received: {DEV_NULL}"
            ),
        )),
        other => Some((
            DriftKind::Unexpected,
            format!("unexpected file {path:?}: this is {}", other.kind()),
        )),
    }
}
