//! Files that the cluster keeps up to date on a machine beside its config: certificates and a secret.
//! They are written by the same steps as everything else, and given back when the machine leaves.

use std::collections::BTreeMap;

use super::error::ApplyError;
use super::fs_node::{FileContent, FileMeta, FsNode};
use super::overlay::TreeOverlay;
use super::tree::FsTree;
use super::{ApplyPlan, HostDefaults, baseline, originals, steps};

/// Where container runtimes look for the certificates of registries.
pub const CLUSTER_CERTIFICATES: &str = "/etc/docker/certs.d";

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFile {
    /// Where.
    pub path: &'static str,
    /// What it holds.
    pub content: FileContent,
    /// Whether it is secret: for root alone where it is new, and never copied.
    pub is_secret: bool,
    /// Whether it is only brought up to date where it is already.
    pub only_if_present: bool,
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFiles {
    /// Who says so, for people.
    pub origin: String,
    /// Files at a place of their own.
    pub files: Vec<ClusterFile>,
    /// Certificates of image registries, by host and port.
    pub registries: BTreeMap<String, FileContent>,
}

/// The plan that brings them up to date. What is as it should be is no step.
pub fn plan_cluster_files(
    wanted: &ClusterFiles,
    tree: &dyn FsTree,
    style: HostDefaults,
) -> Result<ApplyPlan, ApplyError> {
    let mut view = TreeOverlay::new(tree, style);
    let record = baseline::read(&mut view)?;
    for file in &wanted.files {
        put(file, &mut view)?;
    }
    put_registries(&wanted.registries, &mut view)?;
    if view.change_count() > 0 {
        record.write(&mut view)?;
    }
    let (from, to) = ("the certificates before".to_owned(), wanted.origin.clone());
    Ok(ApplyPlan { from, to, steps: steps::ordered_steps(view)?, notes: Vec::new() })
}

/// The plan that gives back whatever was taken over and no config speaks of any more: for a machine
/// that leaves.
pub fn plan_release_all(tree: &dyn FsTree, style: HostDefaults) -> Result<ApplyPlan, ApplyError> {
    let mut view = TreeOverlay::new(tree, style);
    let record = baseline::read(&mut view)?;
    for path in originals::taken_over_paths(&mut view)? {
        originals::restore_original(&path, &mut view)?;
    }
    record.write(&mut view)?;
    let steps = steps::ordered_steps(view)?;
    Ok(ApplyPlan { from: "joined".to_owned(), to: "left".to_owned(), steps, notes: Vec::new() })
}

fn put(file: &ClusterFile, view: &mut TreeOverlay) -> Result<(), ApplyError> {
    let path = view.resolve(file.path)?;
    let found = view.node(&path)?;
    if found.is_absent() && file.only_if_present {
        return Ok(());
    }
    let mode = if file.is_secret { 0o600 } else { 0o644 };
    put_content(&path, &file.content, mode, file.is_secret, view)
}

/// Whoever has set permissions had a reason: they stay.
fn put_content(
    path: &str,
    content: &FileContent,
    mode: u32,
    is_secret: bool,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    let meta = match view.node(path)? {
        FsNode::File { content: found, .. } if found == *content => return Ok(()),
        FsNode::File { meta, .. } => meta,
        _ => FileMeta { mode, owner: view.style.owner },
    };
    originals::back_up_cluster_file(path, is_secret, view)?;
    view.set_with_parents(path, FsNode::File { meta, content: content.clone() })
}

/// Certificates of registries, only where there is a place for them. A cluster that names registries
/// owns that place, as in the real system: others go. One that names none takes back its own.
fn put_registries(
    wanted: &BTreeMap<String, FileContent>,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    // The place itself may be a link.
    let inside = view.resolve(&format!("{CLUSTER_CERTIFICATES}/x"))?;
    let place = super::overlay::parent_dir(&inside).to_owned();
    if !matches!(view.node(&place)?, FsNode::Directory { .. }) {
        return Ok(());
    }
    for name in view.entries(&place)? {
        let folder = format!("{place}/{name}");
        let is_folder = matches!(view.node(&folder)?, FsNode::Directory { .. });
        if !is_folder || wanted.contains_key(&name) {
            continue;
        }
        let certificate = format!("{folder}/ca.crt");
        if originals::is_taken_over(&certificate, view)? {
            originals::restore_original(&certificate, view)?;
        } else if !wanted.is_empty() {
            remove(&folder, view)?;
        }
    }
    for (name, content) in wanted {
        put_content(&format!("{place}/{name}/ca.crt"), content, 0o644, false, view)?;
    }
    Ok(())
}

/// A folder with all that is in it.
fn remove(folder: &str, view: &mut TreeOverlay) -> Result<(), ApplyError> {
    for name in view.entries(folder)? {
        let path = format!("{folder}/{name}");
        match view.node(&path)? {
            FsNode::Directory { .. } => remove(&path, view)?,
            _ => view.set(&path, FsNode::Absent),
        }
    }
    view.set(folder, FsNode::Absent);
    Ok(())
}
