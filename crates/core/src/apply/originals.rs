//! What is kept before a path is taken over (`orig`, or a marker in `noorig` that nothing was there), and
//! what is restored when no config manages the path any more.

use std::collections::{BTreeMap, BTreeSet};

use super::error::ApplyError;
use super::fs_node::FsNode;
use super::managed_paths::{DesiredPath, PathOrigin};
use super::original_names::{
    LONG_ORIGINALS, MARKER_SUFFIX, ORIGINAL_SUFFIX, RECORD_SUFFIX, is_hashed, no_original_marker,
    original_path, path_record,
};
use super::overlay::TreeOverlay;
use crate::api::names::path::{KUBELET_CA, NO_ORIGINALS, ORIGINALS, PULL_SECRET};

/// Certificates that outlive the config they came with.
const PRESERVED_FILES: [&str; 3] = [
    "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
    KUBELET_CA,
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
];
/// Certificates of image registries, which outlive it too.
const PRESERVED_DIR: &str = "/etc/docker/certs.d";

/// Keeps what is there, then writes what the config wants.
pub(super) fn take_over(
    managed: &BTreeMap<String, PathOrigin>,
    wanted: &[DesiredPath],
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    wanted.iter().try_for_each(|want| take_over_one(managed, want, view))
}

/// The same for one path. Nothing is planned for a path with an error.
pub(super) fn take_over_one(
    managed: &BTreeMap<String, PathOrigin>,
    want: &DesiredPath,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    if want.node.is_absent() && !view.exists(&want.path)? {
        return back_up(&want.path, want.origin, managed.contains_key(&want.path), view);
    }
    view.check_settable(&want.path, &want.node)?;
    back_up(&want.path, want.origin, managed.contains_key(&want.path), view)?;
    view.set_with_parents(&want.path, want.node.clone())
}

/// Keeps what was there before the first config that managed the path, or a marker that nothing was.
fn back_up(
    path: &str,
    origin: PathOrigin,
    is_managed: bool,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    let (orig, mark) =
        (view.resolve(&original_path(path))?, view.resolve(&no_original_marker(path))?);
    if view.exists(&orig)? || view.exists(&mark)? {
        return Ok(());
    }
    let found = view.node(path)?;
    let is_original = !is_managed && path != PULL_SECRET;
    match found {
        FsNode::File { .. } | FsNode::Link { .. } if is_original => {
            view.set_with_parents(&orig, found)?;
            record_path(&orig, path, view)
        }
        _ if origin == PathOrigin::File => {
            view.write(&mark, Vec::new())?;
            record_path(&mark, path, view)
        }
        _ => Ok(()),
    }
}

/// Records which path a hash stands for.
fn record_path(name: &str, path: &str, view: &mut TreeOverlay) -> Result<(), ApplyError> {
    if !is_hashed(name) {
        return Ok(());
    }
    view.write(&path_record(path), path.as_bytes().to_vec())
}

/// Removes the record of a path that was restored.
fn forget_path(path: &str, view: &mut TreeOverlay) -> Result<(), ApplyError> {
    let record = view.resolve(&path_record(path))?;
    if view.exists(&record)? {
        view.set(&record, FsNode::Absent);
    }
    Ok(())
}

/// Restores every path that is not managed any more.
pub(super) fn release(
    managed: &BTreeMap<String, PathOrigin>,
    wanted: &[DesiredPath],
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    let stays: BTreeSet<&str> = wanted.iter().map(|want| want.path.as_str()).collect();
    for path in managed.keys() {
        let is_kept = PRESERVED_FILES.contains(&path.as_str()) || path.contains(PRESERVED_DIR);
        if !stays.contains(path.as_str()) && !is_kept {
            restore_original(path, view)?;
        }
    }
    Ok(())
}

/// Restores the original, or removes the path if there was none.
pub(super) fn restore_original(path: &str, view: &mut TreeOverlay) -> Result<(), ApplyError> {
    let (orig, mark) =
        (view.resolve(&original_path(path))?, view.resolve(&no_original_marker(path))?);
    let kept = view.node(&orig)?;
    forget_path(path, view)?;
    if view.exists(&mark)? {
        view.set(&mark, FsNode::Absent);
    } else if matches!(kept, FsNode::File { .. } | FsNode::Link { .. }) {
        view.set_with_parents(path, kept)?;
        view.set(&orig, FsNode::Absent);
        return Ok(());
    }
    match view.node(path)? {
        // Someone put something else there; it is not ours to remove.
        FsNode::Absent | FsNode::Directory { .. } | FsNode::Special => Ok(()),
        FsNode::File { .. } | FsNode::Link { .. } => {
            view.set(path, FsNode::Absent);
            Ok(())
        }
    }
}

/// Keeps a file that the cluster takes over. A secret is not copied.
pub(super) fn back_up_cluster_file(
    path: &str,
    is_secret: bool,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    back_up(path, PathOrigin::File, is_secret, view)
}

/// Whether a path was taken over.
pub(super) fn is_taken_over(path: &str, view: &mut TreeOverlay) -> Result<bool, ApplyError> {
    let (orig, mark) =
        (view.resolve(&original_path(path))?, view.resolve(&no_original_marker(path))?);
    Ok(view.exists(&orig)? || view.exists(&mark)?)
}

/// Every path that was taken over and not restored.
pub(super) fn taken_over_paths(view: &mut TreeOverlay) -> Result<BTreeSet<String>, ApplyError> {
    let mut taken = recorded_paths(view)?;
    for (directory, ending) in [(ORIGINALS, ORIGINAL_SUFFIX), (NO_ORIGINALS, MARKER_SUFFIX)] {
        let directory = view.resolve(directory)?;
        let mut directories = vec![directory.clone()];
        while let Some(at) = directories.pop() {
            for name in view.entries(&at)? {
                let path = format!("{at}/{name}");
                match view.node(&path)? {
                    FsNode::Directory { .. } => directories.push(path),
                    _ => taken.extend(
                        path.strip_prefix(&directory)
                            .and_then(|path| path.strip_suffix(ending))
                            .map(str::to_owned),
                    ),
                }
            }
        }
    }
    Ok(taken)
}

/// The paths that a hash stands for.
fn recorded_paths(view: &mut TreeOverlay) -> Result<BTreeSet<String>, ApplyError> {
    let inside = view.resolve(&format!("{LONG_ORIGINALS}/x"))?;
    let directory = super::overlay::parent_dir(&inside).to_owned();
    let mut paths = BTreeSet::new();
    for name in view.entries(&directory)? {
        if name.ends_with(RECORD_SUFFIX) {
            let text = view.text(&format!("{directory}/{name}"))?.unwrap_or_default();
            // A damaged record names another path: it must not be restored.
            if path_record(&text).ends_with(&format!("/{name}")) {
                paths.insert(text);
            }
        }
    }
    Ok(paths)
}

/// Keeps a file without a marker: the keys of `core`.
pub(super) fn back_up_without_marker(
    path: &str,
    is_managed: bool,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    back_up(path, PathOrigin::Unit, is_managed, view)
}
