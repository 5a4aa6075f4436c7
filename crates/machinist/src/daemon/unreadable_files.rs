//! Moves records of the daemon away that nobody can read, so that a damaged file stops nothing: the machine goes on, the
//! disk is compared with its config, and the file stays for whoever wants to look at it. Called by `transaction` before a
//! recovery, by `leave`, and by `state` for what is in the way of a file.
//!
//! A file of a newer version is not damaged: only `leave`, after which nobody reads it, moves it away.

use std::fmt;
use std::io;

use anyhow::{Context as _, Result};
use machinist_core::apply::{
    BASELINE_PATH, FsNode, FsTree as _, HostBaseline, QUARANTINE_PATH, Quarantine,
};
use machinist_core::versioned::VersionedFileError;
use rustix::io::Errno;

use super::journal::{self, Journal};
use super::root::{HostRoot, MAX_FILE_SIZE, split};

/// The names of files that were moved away end with this.
const SUFFIX: &str = ".unreadable";
/// How many files of one name are kept if they cannot replace each other.
const MAX_KEPT: usize = 9;

/// Which files are moved away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// Damaged ones.
    Damaged,
    /// Also those of a newer version.
    DamagedOrNewer,
}

/// A file that was moved away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableFile {
    /// What is wrong with it, with its path.
    problem: String,
    /// Where it is now.
    moved_to: String,
    /// What is not known any more.
    consequence: &'static str,
}

impl fmt::Display for UnreadableFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { problem, moved_to, consequence } = self;
        write!(formatter, "{problem}: moved it to {moved_to}; {consequence}")
    }
}

/// A record, how it is read, and what is lost without it.
struct Record {
    path: &'static str,
    read: fn(&'static str, &[u8]) -> Result<(), VersionedFileError>,
    consequence: &'static str,
}

const JOURNAL_LOST: &str = "what an interrupted change did is found by comparing the disk with the config; files named .machinist-* beside managed files are left over from it";

const RECORDS: [Record; 4] = [
    Record {
        path: journal::JOURNAL_PATH,
        read: |path, bytes| Journal::from_json(path, bytes).map(drop),
        consequence: JOURNAL_LOST,
    },
    Record {
        path: journal::COMMITTED_PATH,
        read: |path, bytes| Journal::from_json(path, bytes).map(drop),
        consequence: JOURNAL_LOST,
    },
    Record {
        path: QUARANTINE_PATH,
        read: |_, bytes| Quarantine::from_json(bytes).map(drop),
        consequence: "paths that an earlier change left wrong are found by comparing the disk with the config",
    },
    Record {
        path: BASELINE_PATH,
        read: |_, bytes| HostBaseline::from_json(bytes).map(drop),
        consequence: "contents of files are restored all the same, but not the links of units, permissions and directories that were there before",
    },
];

/// Moves the records away that cannot be read. Returns them.
pub(super) fn set_aside(root: &HostRoot, which: Unreadable) -> Result<Vec<UnreadableFile>> {
    let mut found = Vec::new();
    // Only a directory is in the way: anything else is removed there.
    if matches!(look(root, journal::TEMP_PATH)?, FsNode::Directory { .. }) {
        move_away(root, journal::TEMP_PATH)?;
    }
    for record in &RECORDS {
        let Some(problem) = problem_of(root, record, which)? else { continue };
        let moved_to = move_away(root, record.path)?;
        let file = UnreadableFile { problem, moved_to, consequence: record.consequence };
        tracing::error!(file = %file, "moved an unreadable record away");
        found.push(file);
    }
    Ok(found)
}

fn problem_of(root: &HostRoot, record: &Record, which: Unreadable) -> Result<Option<String>> {
    match look(root, record.path)? {
        FsNode::Absent => return Ok(None),
        FsNode::File { content, .. } if content.size > MAX_FILE_SIZE => {
            return Ok(Some(format!("{} is larger than such a file can be", record.path)));
        }
        FsNode::File { .. } => {}
        other => return Ok(Some(format!("{} is {}, not a file", record.path, other.kind()))),
    }
    // Whatever keeps it from being read may be over soon: no open files, no memory.
    let bytes = root.read(record.path)?;
    Ok(match (record.read)(record.path, &bytes) {
        Ok(()) => None,
        Err(VersionedFileError::TooNew { .. }) if which == Unreadable::Damaged => None,
        Err(error) => Some(error.to_string()),
    })
}

fn look(root: &HostRoot, path: &str) -> Result<FsNode> {
    root.look(path).with_context(|| format!("cannot read {path}"))
}

/// Gives what is at a path another name. Returns the name.
pub(super) fn move_away(root: &HostRoot, path: &str) -> Result<String> {
    let moved = || {
        let mut to = format!("{path}{SUFFIX}");
        for next in 1..=MAX_KEPT {
            match root.rename(path, &to) {
                Err(error) if is_in_the_way(&error) => to = format!("{path}{SUFFIX}-{next}"),
                done => return done.map(|()| to),
            }
        }
        Err(io::Error::other(format!("there are {MAX_KEPT} such files already: remove them")))
    };
    let to = moved().with_context(|| format!("cannot move {path} away: remove it"))?;
    root.fsync_directory(split(path).0).with_context(|| format!("cannot move {path} away"))?;
    Ok(to)
}

/// Whether a rename failed because a directory would replace a file, or a file a directory.
fn is_in_the_way(error: &io::Error) -> bool {
    let errors = [Errno::ISDIR, Errno::NOTDIR, Errno::NOTEMPTY, Errno::EXIST];
    errors.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_what_nobody_can_read_is_moved_away() {
        let directory = tempfile::tempdir().unwrap();
        let etc = directory.path().join("etc");
        fs::create_dir_all(etc.join("machine-config-daemon")).unwrap();
        let root = HostRoot::open(directory.path()).unwrap();
        assert!(set_aside(&root, Unreadable::DamagedOrNewer).unwrap().is_empty());
        for record in &RECORDS {
            let file = directory.path().join(&record.path[1..]);
            fs::write(&file, r#"{"version":99}"#).unwrap();
            assert!(set_aside(&root, Unreadable::Damaged).unwrap().is_empty(), "{}", record.path);
            assert!(file.exists());
            for damage in ["", "{", "\0\0\0\0", r#"{"version":1,"steps":7,"metas":7}"#] {
                fs::write(&file, damage).unwrap();
                let moved = set_aside(&root, Unreadable::Damaged).unwrap();
                assert_eq!(moved.len(), 1, "{}: {damage:?}", record.path);
                assert!(moved[0].to_string().contains(record.path), "{moved:?}");
                assert!(!file.exists() && root.exists(&moved[0].moved_to).unwrap());
            }
            fs::File::create(&file).unwrap().set_len(MAX_FILE_SIZE + 1).unwrap();
            assert_eq!(set_aside(&root, Unreadable::Damaged).unwrap().len(), 1);
            // A directory, which the file that was moved away keeps from its name.
            fs::create_dir(&file).unwrap();
            let moved = set_aside(&root, Unreadable::Damaged).unwrap();
            assert_eq!(moved[0].moved_to, format!("{}{SUFFIX}-1", record.path));
            std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
            assert_eq!(set_aside(&root, Unreadable::Damaged).unwrap().len(), 1);
            fs::write(&file, r#"{"version":99}"#).unwrap();
            assert_eq!(set_aside(&root, Unreadable::DamagedOrNewer).unwrap().len(), 1);
        }
        fs::create_dir(etc.join(".machinist-journal.new")).unwrap();
        set_aside(&root, Unreadable::Damaged).unwrap();
        assert!(!etc.join(".machinist-journal.new").exists());
    }
}
