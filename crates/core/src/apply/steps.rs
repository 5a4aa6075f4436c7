//! The order of steps: directories are created first, from the top; then files are put in place, in the
//! order of the config; then files are removed, and last the empty directories, from the bottom. The
//! daemon's record of the current config comes after all other files.

use super::DiskStep;
use super::error::ApplyError;
use super::fs_node::FsNode;
use super::overlay::TreeOverlay;
use crate::api::names::path::DAEMON_DIR;
use crate::ignition::path_limits::check_path_length;

/// The steps from what is there to what will be there.
pub(super) fn ordered_steps(view: TreeOverlay) -> Result<Vec<DiskStep>, ApplyError> {
    let changes = view.into_changes()?;
    let mut steps = Vec::with_capacity(changes.len());
    for (path, from, to) in changes {
        let kinds = (&from, &to);
        let mixes_directory =
            matches!(from, FsNode::Directory { .. }) != matches!(to, FsNode::Directory { .. });
        if mixes_directory && !from.is_absent() && !to.is_absent() {
            let (found, wanted) = (kinds.0.kind(), kinds.1.kind());
            return Err(ApplyError::Obstructed { path, found, wanted });
        }
        // Paths that the plan itself derives, such as links of units, have the limits of Linux too.
        check_path_length(&path)?;
        steps.push(DiskStep { path, from, to });
    }
    steps.sort_by_cached_key(rank);
    Ok(steps)
}

/// The sort is stable: the order of the config decides where ranks are equal.
fn rank(step: &DiskStep) -> (u8, usize, String) {
    let depth = step.path.matches('/').count();
    let own = step.path.starts_with(DAEMON_DIR);
    match (&step.from, &step.to) {
        (FsNode::Absent, FsNode::Directory { .. }) => (0, depth, step.path.clone()),
        (_, FsNode::Directory { .. }) => (1, 0, String::new()),
        (FsNode::Directory { .. }, _) => (6, usize::MAX - depth, step.path.clone()),
        (_, FsNode::Absent) => (4, 0, String::new()),
        _ if own && !step.path.ends_with("orig") => (3, 0, String::new()),
        _ => (2, 0, String::new()),
    }
}
