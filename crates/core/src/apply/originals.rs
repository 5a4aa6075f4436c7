//! What is kept before a path is taken over (`orig`, or a mark in `noorig` that there was nothing),
//! and what is put back when a config lets go of it.

use std::collections::{BTreeMap, BTreeSet};

use super::error::ApplyError;
use super::managed::{Origin, Want};
use super::node::Node;
use super::view::View;
use crate::api::names::path::{KUBELET_CA, NO_ORIGINALS, ORIGINALS, PULL_SECRET};

/// Certificates that outlive the config that brought them.
const KEPT: [&str; 3] = [
    "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
    KUBELET_CA,
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
];
/// Certificates of image registries, likewise.
const KEPT_FOLDER: &str = "/etc/docker/certs.d";

/// Where the original of a path is kept.
fn original(path: &str) -> String {
    format!("{ORIGINALS}{path}.mcdorig")
}

/// The mark that there was no original.
fn no_original(path: &str) -> String {
    format!("{NO_ORIGINALS}{path}.mcdnoorig")
}

/// Keeps what is there, then puts what is wanted.
pub(super) fn acquire(
    managed: &BTreeMap<String, Origin>,
    wanted: &[Want],
    view: &mut View,
) -> Result<(), ApplyError> {
    for want in wanted {
        keep(&want.path, want.origin, managed.contains_key(&want.path), view)?;
        match &want.node {
            Node::Absent if view.exists(&want.path)? => view.put(&want.path, Node::Absent)?,
            Node::Absent => {}
            node => view.put(&want.path, node.clone())?,
        }
    }
    Ok(())
}

/// What was there before the first config that spoke of the path, or a mark that nothing was.
fn keep(path: &str, origin: Origin, is_managed: bool, view: &mut View) -> Result<(), ApplyError> {
    let (orig, mark) = (view.resolve(&original(path))?, view.resolve(&no_original(path))?);
    if view.exists(&orig)? || view.exists(&mark)? {
        return Ok(());
    }
    let found = view.node(path)?;
    let is_original = !is_managed && path != PULL_SECRET;
    match found {
        Node::File { .. } | Node::Link { .. } if is_original => view.put(&orig, found),
        _ if origin == Origin::File => view.write(&mark, Vec::new()),
        _ => Ok(()),
    }
}

/// Gives back every path that is not wanted any more.
pub(super) fn release(
    managed: &BTreeMap<String, Origin>,
    wanted: &[Want],
    view: &mut View,
) -> Result<(), ApplyError> {
    let stays: BTreeSet<&str> = wanted.iter().map(|want| want.path.as_str()).collect();
    for path in managed.keys() {
        let is_kept = KEPT.contains(&path.as_str()) || path.contains(KEPT_FOLDER);
        if !stays.contains(path.as_str()) && !is_kept {
            give_back(path, view)?;
        }
    }
    Ok(())
}

/// The original, or nothing where there was none.
pub(super) fn give_back(path: &str, view: &mut View) -> Result<(), ApplyError> {
    let (orig, mark) = (view.resolve(&original(path))?, view.resolve(&no_original(path))?);
    let kept = view.node(&orig)?;
    if view.exists(&mark)? {
        view.set(&mark, Node::Absent);
    } else if matches!(kept, Node::File { .. } | Node::Link { .. }) {
        view.put(path, kept)?;
        view.set(&orig, Node::Absent);
        return Ok(());
    }
    match view.node(path)? {
        // Somebody put something else there; it is not ours to remove.
        Node::Absent | Node::Folder { .. } | Node::Special => Ok(()),
        Node::File { .. } | Node::Link { .. } => {
            view.set(path, Node::Absent);
            Ok(())
        }
    }
}

/// Keeps a file that another writer than a config takes over. Of a secret no copy is made.
pub(super) fn keep_of_cluster(
    path: &str,
    is_secret: bool,
    view: &mut View,
) -> Result<(), ApplyError> {
    keep(path, Origin::File, is_secret, view)
}

/// Whether a path was taken over.
pub(super) fn is_taken(path: &str, view: &mut View) -> Result<bool, ApplyError> {
    let (orig, mark) = (view.resolve(&original(path))?, view.resolve(&no_original(path))?);
    Ok(view.exists(&orig)? || view.exists(&mark)?)
}

/// Every path that was taken over and not given back.
pub(super) fn taken(view: &mut View) -> Result<BTreeSet<String>, ApplyError> {
    let mut taken = BTreeSet::new();
    for (folder, ending) in [(ORIGINALS, ".mcdorig"), (NO_ORIGINALS, ".mcdnoorig")] {
        let folder = view.resolve(folder)?;
        let mut folders = vec![folder.clone()];
        while let Some(at) = folders.pop() {
            for name in view.names(&at)? {
                let path = format!("{at}/{name}");
                match view.node(&path)? {
                    Node::Folder { .. } => folders.push(path),
                    _ => taken.extend(
                        path.strip_prefix(&folder)
                            .and_then(|path| path.strip_suffix(ending))
                            .map(str::to_owned),
                    ),
                }
            }
        }
    }
    Ok(taken)
}

/// Keeps a file that no stamp is made for: the keys of `core`.
pub(super) fn keep_unmarked(
    path: &str,
    is_managed: bool,
    view: &mut View,
) -> Result<(), ApplyError> {
    keep(path, Origin::Unit, is_managed, view)
}
