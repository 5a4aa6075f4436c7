//! What keeps a path from being changed, and the remedy. The shell gathers [`PathFacts`] before the first
//! write of a change; this module decides. A change with an obstacle is refused, so that undoing never
//! meets one that was there when the change began.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::DiskStep;
use super::fs_node::FsNode;

/// What the kernel reports about something that is at a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathFacts {
    /// It has the attribute `i`: nobody may change, rename or remove it.
    pub is_immutable: bool,
    /// It has the attribute `a`: nobody may rename or remove it, nor what is in it.
    pub is_append_only: bool,
    /// Something is mounted on it.
    pub is_mount_point: bool,
    /// Its file system is mounted read-only.
    pub is_read_only: bool,
}

/// What keeps a path from being changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Obstacle {
    /// The path or its directory is immutable.
    Immutable {
        /// Which of them.
        at: String,
    },
    /// The path or its directory is append-only.
    AppendOnly {
        /// Which of them.
        at: String,
    },
    /// The file system is read-only.
    ReadOnly {
        /// The directory.
        at: String,
    },
    /// Something is mounted on the path.
    MountPoint {
        /// The path.
        at: String,
    },
    /// It is a part of Machinist that only this machine knows, such as a binary at a path of its own.
    OwnFile,
    /// A system call failed for another reason.
    Failed {
        /// The error.
        problem: String,
    },
}

impl Obstacle {
    /// The problem and the remedy, for people who know which path it is about.
    fn describe(&self, path: &str) -> String {
        let subject = |at: &str| if at == path { "it".to_owned() } else { format!("{at:?}") };
        match self {
            Self::Immutable { at } => format!("{} is immutable: run chattr -i {at}", subject(at)),
            Self::AppendOnly { at } => {
                format!("{} is append-only: run chattr -a {at}", subject(at))
            }
            Self::ReadOnly { at } => {
                format!("{} is on a read-only file system: mount it read-write", subject(at))
            }
            Self::MountPoint { at } => {
                format!("something is mounted on {}: run umount {at}", subject(at))
            }
            Self::OwnFile => {
                "it belongs to Machinist, and no config may write it: remove it from the config"
                    .to_owned()
            }
            Self::Failed { problem } => {
                format!("{problem}: see the kernel log (journalctl -k) for the cause")
            }
        }
    }
}

/// A path that cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObstructedPath {
    /// The path.
    pub path: String,
    /// What keeps it from being changed.
    pub obstacle: Obstacle,
}

impl fmt::Display for ObstructedPath {
    /// The path, the problem and the remedy.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, obstacle } = self;
        write!(formatter, "cannot change {path:?}: {}", obstacle.describe(path))
    }
}

/// Finds what keeps a step from being performed or undone. `node` is what is at the path, if anything;
/// `directory` is the nearest directory above it that exists.
#[must_use]
pub fn find_obstacle(
    step: &DiskStep,
    node: Option<PathFacts>,
    directory: (&str, PathFacts),
) -> Option<Obstacle> {
    let (above, facts) = directory;
    let is_directory_kept =
        matches!((&step.from, &step.to), (FsNode::Directory { .. }, FsNode::Directory { .. }));
    // Permissions of a directory change in place; everything else changes names in the directory above.
    let names = if is_directory_kept { None } else { attribute_obstacle(above, facts) };
    let is_removed_directory = matches!(step.from, FsNode::Directory { .. });
    names.or_else(|| {
        let node = node?;
        let mounted = node.is_mount_point && !is_removed_directory;
        match attribute_obstacle(&step.path, node) {
            // The mount itself may be read-only, but the remedy is to unmount it.
            _ if mounted => Some(Obstacle::MountPoint { at: step.path.clone() }),
            found => found,
        }
    })
}

/// Whether a step would replace or remove one of these paths, which belong to Machinist.
#[must_use]
pub fn own_file_obstacle(step: &DiskStep, own: &[String]) -> Option<Obstacle> {
    let keeps_what_is_below = matches!(step.to, FsNode::Directory { .. });
    let is_hit = |own: &String| match own.strip_prefix(&step.path) {
        Some("") => true,
        Some(rest) => rest.starts_with('/') && !keeps_what_is_below,
        None => false,
    };
    own.iter().any(is_hit).then_some(Obstacle::OwnFile)
}

fn attribute_obstacle(path: &str, facts: PathFacts) -> Option<Obstacle> {
    let at = path.to_owned();
    match facts {
        PathFacts { is_read_only: true, .. } => Some(Obstacle::ReadOnly { at }),
        PathFacts { is_immutable: true, .. } => Some(Obstacle::Immutable { at }),
        PathFacts { is_append_only: true, .. } => Some(Obstacle::AppendOnly { at }),
        _ => None,
    }
}

/// One line for people about several paths.
#[must_use]
pub fn describe_obstructed(paths: &[ObstructedPath]) -> String {
    /// How many paths a reason names.
    const MAX_NAMED: usize = 5;
    let mut named: Vec<String> = paths.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    if paths.len() > MAX_NAMED {
        named.push(format!("and {} more", paths.len() - MAX_NAMED));
    }
    named.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{FileContent, FileMeta, FileOwner};

    const META: FileMeta = FileMeta { mode: 0o644, owner: FileOwner { uid: 0, gid: 0 } };

    #[test]
    fn an_obstacle_names_what_has_to_be_changed() {
        let file = || FsNode::File { meta: META, content: FileContent::new(b"x".to_vec()) };
        let directory = || FsNode::Directory { meta: META };
        let none = PathFacts::default();
        let immutable = PathFacts { is_immutable: true, ..none };
        let append_only = PathFacts { is_append_only: true, ..none };
        let read_only = PathFacts { is_read_only: true, ..none };
        let mounted = PathFacts { is_mount_point: true, is_read_only: true, ..none };
        for (from, to, node, above, expected) in [
            (file(), file(), Some(none), none, None),
            (FsNode::Absent, file(), None, none, None),
            (file(), file(), Some(immutable), none, Some("it is immutable: run chattr -i /d/f")),
            (file(), FsNode::Absent, Some(append_only), none, Some("run chattr -a /d/f")),
            (FsNode::Absent, file(), None, immutable, Some("run chattr -i /d")),
            // A new file could be made, but undoing could not remove it.
            (FsNode::Absent, file(), None, append_only, Some("run chattr -a /d")),
            (
                FsNode::Absent,
                directory(),
                None,
                read_only,
                Some("\"/d\" is on a read-only file system"),
            ),
            (file(), file(), Some(mounted), none, Some("run umount /d/f")),
            (directory(), directory(), Some(none), immutable, None),
            (directory(), directory(), Some(immutable), none, Some("run chattr -i /d/f")),
            (
                directory(),
                directory(),
                Some(PathFacts { is_mount_point: true, ..none }),
                none,
                None,
            ),
            // A directory that is in use stays when its removal is due.
            (
                directory(),
                FsNode::Absent,
                Some(PathFacts { is_mount_point: true, ..none }),
                none,
                None,
            ),
            (directory(), FsNode::Absent, Some(none), immutable, Some("run chattr -i /d")),
        ] {
            let step = DiskStep { path: "/d/f".to_owned(), from, to };
            let found =
                find_obstacle(&step, node, ("/d", above)).map(|found| found.describe(&step.path));
            match expected {
                None => assert_eq!(found, None, "{step:?}"),
                Some(part) => assert!(found.as_ref().unwrap().contains(part), "{found:?}"),
            }
        }
    }

    #[test]
    fn a_binary_at_a_path_of_its_own_is_not_replaced() {
        let file = || FsNode::File { meta: META, content: FileContent::new(b"x".to_vec()) };
        let directory = || FsNode::Directory { meta: META };
        let own = ["/opt/m/machinist".to_owned()];
        for (path, to, is_refused) in [
            ("/opt/m/machinist", file(), true),
            ("/opt/m/machinist", FsNode::Absent, true),
            ("/opt/m/machinist", directory(), true),
            ("/opt/m", FsNode::Absent, true),
            ("/opt", file(), true),
            ("/opt", directory(), false),
            ("/opt/m/machinist2", file(), false),
            ("/opt/m/mach", file(), false),
            ("/opt/m/machinist/x", file(), false),
        ] {
            let step = DiskStep { path: path.to_owned(), from: FsNode::Absent, to };
            let found = own_file_obstacle(&step, &own);
            assert_eq!(found == Some(Obstacle::OwnFile), is_refused, "{step:?}");
            assert_eq!(own_file_obstacle(&step, &[]), None);
        }
        let path = ObstructedPath { path: own[0].clone(), obstacle: Obstacle::OwnFile };
        assert!(path.to_string().contains("/opt/m/machinist\": it belongs to Machinist"), "{path}");
    }

    #[test]
    fn a_reason_names_the_first_paths() {
        let path = |number: usize| ObstructedPath {
            path: format!("/{number}"),
            obstacle: Obstacle::MountPoint { at: format!("/{number}") },
        };
        let paths: Vec<ObstructedPath> = (0..7).map(path).collect();
        let reason = describe_obstructed(&paths);
        assert!(
            reason.starts_with("cannot change \"/0\": something is mounted on it: run umount /0")
        );
        assert!(reason.ends_with("run umount /4; and 2 more"), "{reason}");
    }
}
