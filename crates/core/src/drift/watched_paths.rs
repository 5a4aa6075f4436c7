//! Which names in which directories have to be watched so that no drift goes unnoticed.

use std::collections::{BTreeMap, BTreeSet};

use crate::apply::{FsTree, VerifyReport};
use crate::ignition::schema::Config;

/// The directory of unit files.
const UNITS_DIR: &str = "/etc/systemd/system";

/// The names in a directory that matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchedNames {
    /// All of them: links of units have any name.
    All,
    /// These names.
    Some(BTreeSet<String>),
}

/// Directories, and what matters in them. A missing directory is watched for in its parent.
pub type WatchedPaths = BTreeMap<String, WatchedNames>;

/// The directories of everything that a config manages, up to the root.
pub(super) fn watched_paths(
    config: &Config,
    verified: &VerifyReport,
    tree: &dyn FsTree,
) -> WatchedPaths {
    let mut watched = WatchedPaths::new();
    for managed in &verified.managed {
        add(&managed.path, &mut watched);
        // The first covers links on the way, the second what they lead to.
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

/// Watches every component of a path.
fn add(path: &str, watched: &mut WatchedPaths) {
    let mut directory = "/".to_owned();
    for name in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        let names =
            watched.entry(directory.clone()).or_insert_with(|| WatchedNames::Some(BTreeSet::new()));
        if let WatchedNames::Some(names) = names {
            names.insert(name.to_owned());
        }
        if directory != "/" {
            directory.push('/');
        }
        directory.push_str(name);
    }
}
