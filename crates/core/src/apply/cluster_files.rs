//! Files that the cluster keeps up to date on a machine beside its config: certificates and a secret.
//! They are written by the same steps as everything else, and given back when the machine leaves.

use std::collections::BTreeMap;

use super::error::ApplyError;
use super::node::{Content, Meta, Node};
use super::tree::Tree;
use super::view::View;
use super::{Plan, Style, originals, record, steps};

/// Where container runtimes look for the certificates of registries.
pub const CLUSTER_CERTIFICATES: &str = "/etc/docker/certs.d";

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFile {
    /// Where.
    pub path: &'static str,
    /// What it holds.
    pub content: Content,
    /// Whether it is secret: for root alone where it is new, and never copied.
    pub is_secret: bool,
    /// Whether it is only brought up to date where it is already.
    pub only_where_it_is: bool,
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFiles {
    /// Who says so, for people.
    pub origin: String,
    /// Files at a place of their own.
    pub files: Vec<ClusterFile>,
    /// Certificates of image registries, by host and port.
    pub registries: BTreeMap<String, Content>,
}

/// The plan that brings them up to date. What is as it should be is no step.
pub fn refresh(wanted: &ClusterFiles, tree: &dyn Tree, style: Style) -> Result<Plan, ApplyError> {
    let mut view = View::new(tree, style);
    let record = record::read(&mut view)?;
    for file in &wanted.files {
        put(file, &mut view)?;
    }
    put_registries(&wanted.registries, &mut view)?;
    if view.changed() > 0 {
        record.write(&mut view)?;
    }
    let (from, to) = ("the certificates before".to_owned(), wanted.origin.clone());
    Ok(Plan { from, to, steps: steps::order(view)?, notes: Vec::new() })
}

/// The plan that gives back whatever was taken over and no config speaks of any more: for a machine
/// that leaves.
pub fn surrender(tree: &dyn Tree, style: Style) -> Result<Plan, ApplyError> {
    let mut view = View::new(tree, style);
    let record = record::read(&mut view)?;
    for path in originals::taken(&mut view)? {
        originals::give_back(&path, &mut view)?;
    }
    record.write(&mut view)?;
    let steps = steps::order(view)?;
    Ok(Plan { from: "joined".to_owned(), to: "left".to_owned(), steps, notes: Vec::new() })
}

fn put(file: &ClusterFile, view: &mut View) -> Result<(), ApplyError> {
    let path = view.resolve(file.path)?;
    let found = view.node(&path)?;
    if found.is_absent() && file.only_where_it_is {
        return Ok(());
    }
    let mode = if file.is_secret { 0o600 } else { 0o644 };
    put_content(&path, &file.content, mode, file.is_secret, view)
}

/// Whoever has set permissions had a reason: they stay.
fn put_content(
    path: &str,
    content: &Content,
    mode: u32,
    is_secret: bool,
    view: &mut View,
) -> Result<(), ApplyError> {
    let meta = match view.node(path)? {
        Node::File { content: found, .. } if found == *content => return Ok(()),
        Node::File { meta, .. } => meta,
        _ => Meta { mode, owner: view.style.owner },
    };
    originals::keep_of_cluster(path, is_secret, view)?;
    view.put(path, Node::File { meta, content: content.clone() })
}

/// Certificates of registries, only where there is a place for them. A cluster that names registries
/// owns that place, as in the real system: others go. One that names none takes back its own.
fn put_registries(wanted: &BTreeMap<String, Content>, view: &mut View) -> Result<(), ApplyError> {
    // The place itself may be a link.
    let inside = view.resolve(&format!("{CLUSTER_CERTIFICATES}/x"))?;
    let place = super::view::folder_of(&inside).to_owned();
    if !matches!(view.node(&place)?, Node::Folder { .. }) {
        return Ok(());
    }
    for name in view.names(&place)? {
        let folder = format!("{place}/{name}");
        let is_folder = matches!(view.node(&folder)?, Node::Folder { .. });
        if !is_folder || wanted.contains_key(&name) {
            continue;
        }
        let certificate = format!("{folder}/ca.crt");
        if originals::is_taken(&certificate, view)? {
            originals::give_back(&certificate, view)?;
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
fn remove(folder: &str, view: &mut View) -> Result<(), ApplyError> {
    for name in view.names(folder)? {
        let path = format!("{folder}/{name}");
        match view.node(&path)? {
            Node::Folder { .. } => remove(&path, view)?,
            _ => view.set(&path, Node::Absent),
        }
    }
    view.set(folder, Node::Absent);
    Ok(())
}
