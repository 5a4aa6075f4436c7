//! Which names in which folders have to be watched so that no difference comes unseen.

use std::collections::{BTreeMap, BTreeSet};

use crate::apply::{FsTree, VerifyReport};
use crate::ignition::schema::Config;

/// Where units are.
const UNITS_DIR: &str = "/etc/systemd/system";

/// Names in a folder that matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchedNames {
    /// Every one: links of units come under any name.
    All,
    /// These.
    Some(BTreeSet<String>),
}

/// Folders, and what matters in them. A folder that is not there is watched for in the one above it.
pub type WatchedPaths = BTreeMap<String, WatchedNames>;

/// The folders of everything that a config manages, up to the root.
pub(super) fn watched_paths(
    config: &Config,
    verified: &VerifyReport,
    tree: &dyn FsTree,
) -> WatchedPaths {
    let mut watched = WatchedPaths::new();
    for managed in &verified.managed {
        add(&managed.path, &mut watched);
        // Links on the way are watched by the first, what they lead to by the second.
        if let Some(real) = managed.resolved_path.as_deref().filter(|real| *real != managed.path) {
            add(real, &mut watched);
        }
    }
    if config.systemd.units.iter().any(|unit| unit.enabled.is_some()) {
        add(UNITS_DIR, &mut watched);
        watched.insert(UNITS_DIR.to_owned(), WatchedNames::All);
        for name in tree.entries(UNITS_DIR).unwrap_or_default() {
            if name.ends_with(".wants") || name.ends_with(".requires") {
                watched.insert(format!("{UNITS_DIR}/{name}"), WatchedNames::All);
            }
        }
    }
    watched
}

/// Watches every name on the way to a path.
fn add(path: &str, watched: &mut WatchedPaths) {
    let mut folder = "/".to_owned();
    for name in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        let names =
            watched.entry(folder.clone()).or_insert_with(|| WatchedNames::Some(BTreeSet::new()));
        if let WatchedNames::Some(names) = names {
            names.insert(name.to_owned());
        }
        if folder != "/" {
            folder.push('/');
        }
        folder.push_str(name);
    }
}
