//! Files that the cluster keeps up to date on a machine next to its config: certificates and a secret.
//! They are written by the same steps as everything else, and restored when the machine leaves.

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
    /// The path.
    pub path: &'static str,
    /// The contents.
    pub content: FileContent,
    /// Whether it is secret: a new one is readable only by root, and it is never copied.
    pub is_secret: bool,
    /// Whether it is only updated where it exists.
    pub only_if_present: bool,
}

/// All files that the cluster keeps up to date.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFiles {
    /// The object they come from, for people.
    pub origin: String,
    /// Files at fixed paths.
    pub files: Vec<ClusterFile>,
    /// Certificates of image registries, by host and port.
    pub registries: BTreeMap<String, FileContent>,
}

/// The plan that updates them. It is empty if nothing differs.
pub fn plan_cluster_files(
    wanted: &ClusterFiles,
    tree: &dyn FsTree,
    defaults: HostDefaults,
) -> Result<ApplyPlan, ApplyError> {
    let mut view = TreeOverlay::new(tree, defaults);
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

/// The plan that restores every path that was taken over and that no config manages any more, for a
/// machine that leaves.
pub fn plan_release_all(
    tree: &dyn FsTree,
    defaults: HostDefaults,
) -> Result<ApplyPlan, ApplyError> {
    let mut view = TreeOverlay::new(tree, defaults);
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

/// Keeps the permissions of an existing file: someone set them for a reason.
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
        _ => FileMeta { mode, owner: view.defaults.owner },
    };
    originals::back_up_cluster_file(path, is_secret, view)?;
    view.set_with_parents(path, FsNode::File { meta, content: content.clone() })
}

/// Writes certificates of registries, if the directory for them exists. A cluster that names registries
/// owns that directory, as in MCO: others are removed. One that names none removes only its own.
fn put_registries(
    wanted: &BTreeMap<String, FileContent>,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    // The directory itself may be a link.
    let inside = view.resolve(&format!("{CLUSTER_CERTIFICATES}/x"))?;
    let place = super::overlay::parent_dir(&inside).to_owned();
    if !matches!(view.node(&place)?, FsNode::Directory { .. }) {
        return Ok(());
    }
    for name in view.entries(&place)? {
        let directory = format!("{place}/{name}");
        let is_directory = matches!(view.node(&directory)?, FsNode::Directory { .. });
        if !is_directory || wanted.contains_key(&name) {
            continue;
        }
        let certificate = format!("{directory}/ca.crt");
        if originals::is_taken_over(&certificate, view)? {
            originals::restore_original(&certificate, view)?;
        } else if !wanted.is_empty() {
            remove(&directory, view)?;
        }
    }
    for (name, content) in wanted {
        put_content(&format!("{place}/{name}/ca.crt"), content, 0o644, false, view)?;
    }
    Ok(())
}

/// Removes a directory with its contents.
fn remove(directory: &str, view: &mut TreeOverlay) -> Result<(), ApplyError> {
    for name in view.entries(directory)? {
        let path = format!("{directory}/{name}");
        match view.node(&path)? {
            FsNode::Directory { .. } => remove(&path, view)?,
            _ => view.set(&path, FsNode::Absent),
        }
    }
    view.set(directory, FsNode::Absent);
    Ok(())
}
