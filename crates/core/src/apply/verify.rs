//! What a config wants, place by place, beside what is there: for whoever looks for differences,
//! and the plan that puts them right.

use std::collections::BTreeSet;

use super::error::ApplyError;
use super::managed::{self, Want};
use super::node::{Content, Meta, Node};
use super::systemd::{self, Enablement};
use super::tree::Tree;
use super::users::Names;
use super::view::View;
use super::{Plan, Style, originals, record, steps};
use crate::api::MachineConfig;
use crate::api::names::path::{INTERNAL_REGISTRY_PULL_SECRET, KUBECONFIG, KUBELET_CA};
use crate::ignition::contents;
use crate::ignition::schema::{Config, File};
use crate::reconcile_check::Change;

/// Files that come with a config and are then kept up to date by another writer: the certificates
/// and the secret of the cluster.
const OTHERS: [&str; 3] = [
    KUBELET_CA,
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
    INTERNAL_REGISTRY_PULL_SECRET,
];

/// What a change writes: not the files that another writer keeps up to date and the config says no
/// other thing about than before, for they may be newer.
pub(super) fn without_others(
    wanted: &[Want],
    change: &Change,
    view: &mut View,
) -> Result<Vec<Want>, ApplyError> {
    let said = |config: &Config, path: &str| {
        let mut files = config.storage.files.iter().rev();
        files.find(|file| file.path == path).map(|file| file.contents.clone())
    };
    let mut written = Vec::with_capacity(wanted.len());
    for want in wanted {
        let path = want.path.as_str();
        let is_others = OTHERS.contains(&path)
            && said(&change.old, path) == said(&change.new, path)
            && matches!(view.before(path)?, Node::File { .. });
        if !is_others {
            written.push(want.clone());
        }
    }
    Ok(written)
}

/// What speaks about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// An entry of `storage.files`.
    File,
    /// A unit.
    Unit,
    /// A drop-in of a unit.
    DropIn,
}

/// A path that a config manages.
#[derive(Debug)]
pub struct Managed {
    /// The path as the config or systemd knows it.
    pub path: String,
    /// Where it really lies, when links are on its way; none where that cannot be said.
    pub real: Option<String>,
    /// What speaks about it.
    pub part: Part,
    /// What is to be there.
    pub wanted: Node,
    /// What is there, or why that cannot be said.
    pub found: Result<Node, ApplyError>,
}

/// All that a config manages, beside what is there.
#[derive(Debug, Default)]
pub struct Verified {
    /// Every path, in the order of the config.
    pub managed: Vec<Managed>,
    /// Units that are not enabled as they should be.
    pub enablement: Vec<Enablement>,
}

/// The contents of a config's files, in its order, and the config without them: sizes and digests
/// are all that is needed to compare.
pub fn split_contents(mut config: Config) -> Result<(Config, Vec<Content>), ApplyError> {
    let mut all = Vec::new();
    for file in config.storage.files.iter_mut() {
        let bytes = contents::decode(&file.contents, managed::LARGEST)
            .map_err(|source| ApplyError::Contents { path: file.path.clone(), source })?;
        all.push(Content::new(bytes).without_bytes());
        file.contents = Default::default();
    }
    Ok((config, all))
}

/// Looks at every path that a config manages. The two arguments are what [`split_contents`] gives.
#[must_use]
pub fn verify(config: &Config, contents: &[Content], tree: &dyn Tree, style: Style) -> Verified {
    let mut view = View::new(tree, style);
    let mut managed = files(config, contents, &mut view);
    managed.extend(units(config, &mut view));
    let mut managed = last_of_each(managed);
    for one in &managed {
        if let Some(real) = &one.real {
            view.set(real, one.wanted.clone());
        }
    }
    managed.retain(|one| !OTHERS.contains(&one.path.as_str()));
    // What cannot be judged because folders are gone is told by the files in them.
    let enablement = systemd::mismatches(config, &mut view).unwrap_or_default();
    Verified { managed, enablement }
}

fn files(config: &Config, contents: &[Content], view: &mut View) -> Vec<Managed> {
    // Without a list of users, names are not known; numbers are.
    let names = Names::read(view).unwrap_or_else(|_| Names::none());
    let look = |(file, content): (&File, &Content)| {
        let place = managed::file_place(file, &names, view);
        let mut meta = Meta { mode: 0o644, owner: view.style.owner };
        let place = place.map(|(real, wanted)| {
            meta = wanted;
            if real == KUBECONFIG {
                // The daemon sees to it, whatever the config says.
                meta.mode = 0o600;
            }
            real
        });
        let wanted = Node::File { meta, content: content.clone() };
        look(file.path.clone(), Part::File, wanted, place, view)
    };
    config.storage.files.iter().zip(contents).map(look).collect()
}

fn units(config: &Config, view: &mut View) -> Vec<Managed> {
    let mut all = Vec::new();
    for unit in &config.systemd.units {
        // A name that cannot be was refused when the config was applied.
        for (path, wanted) in managed::unit_nodes(unit, view).unwrap_or_default() {
            let is_own = path.ends_with(&format!("/{}", unit.name));
            let part = if is_own { Part::Unit } else { Part::DropIn };
            let place = view.resolve(&path);
            all.push(look(path, part, wanted, place, view));
        }
    }
    all
}

fn look(
    path: String,
    part: Part,
    wanted: Node,
    place: Result<String, ApplyError>,
    view: &mut View,
) -> Managed {
    match place {
        Ok(real) => {
            let found = view.before(&real);
            Managed { path, real: Some(real), part, wanted, found }
        }
        Err(problem) => Managed { path, real: None, part, wanted, found: Err(problem) },
    }
}

/// A path that is named twice is as the last one says.
fn last_of_each(all: Vec<Managed>) -> Vec<Managed> {
    let mut seen = BTreeSet::new();
    let place = |one: &Managed| one.real.clone().unwrap_or_else(|| one.path.clone());
    let mut kept: Vec<Managed> =
        all.into_iter().rev().filter(|one| seen.insert(place(one))).collect();
    kept.reverse();
    kept
}

/// The plan that puts right whatever [`verify`] finds on a machine that has the config.
pub fn repair(
    machine_config: &MachineConfig,
    config: &Config,
    tree: &dyn Tree,
    style: Style,
) -> Result<Plan, ApplyError> {
    let mut view = View::new(tree, style);
    let mut record = record::read(&mut view)?;
    let before = managed::paths(config, &mut view)?;
    let mut wanted = managed::wanted(config, &mut view)?;
    wanted.retain(|want: &Want| !OTHERS.contains(&want.path.as_str()));
    originals::acquire(&before, &wanted, &mut view)?;
    for unit in &config.systemd.units {
        if let Some(mask) = systemd::foreign_mask(unit, &mut view)? {
            view.set(&mask, Node::Absent);
        }
    }
    let notes = systemd::enable_again(config, &mut view, &mut record)?;
    super::restrict_kubeconfig(&mut view, &mut record)?;
    record.write(&mut view)?;
    let name = machine_config.metadata.name.clone().unwrap_or_default();
    Ok(Plan { from: name.clone(), to: name, steps: steps::order(view)?, notes })
}
