//! Why a change cannot be planned. Nothing has been written when one of these is returned.

use super::tree::FsTreeError;
use crate::ignition::contents::ContentsError;
use crate::ignition::path_limits::PathTooLong;
use crate::versioned::VersionedFileError;

/// Why a change cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The tree cannot be read.
    #[error(transparent)]
    Tree(#[from] FsTreeError),
    /// A path cannot be written safely.
    #[error(
        "storage.files: path {path:?} {problem}: write it as an absolute path without \"..\" and without a slash at its end"
    )]
    InvalidPath {
        /// The path.
        path: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// A path is longer than Linux allows.
    #[error(transparent)]
    PathTooLong(#[from] PathTooLong),
    /// The name of a unit or drop-in is not a plain file name.
    #[error("systemd.units: the name {name:?} is not a plain file name: remove the slashes")]
    InvalidUnitName {
        /// The name.
        name: String,
    },
    /// The path belongs to the daemon itself.
    #[error("storage.files: {path:?} is written by the daemon itself: remove it from the config")]
    ReservedPath {
        /// The path.
        path: String,
    },
    /// Contents cannot be decoded.
    #[error("storage.files: could not decode file {path:?}: {source}")]
    Contents {
        /// The path.
        path: String,
        /// Why.
        source: ContentsError,
    },
    /// The machine does not have the user.
    #[error(
        "storage.files: failed to retrieve file ownership for file {path:?}: failed to retrieve UserID for username: {name}: give user.id, or a user of the machine's /etc/passwd"
    )]
    UnknownUser {
        /// The file.
        path: String,
        /// The user.
        name: String,
    },
    /// The machine does not have the group.
    #[error(
        "storage.files: failed to retrieve file ownership for file {path:?}: failed to retrieve GroupID for group: {name}: give group.id, or a group of the machine's /etc/group"
    )]
    UnknownGroup {
        /// The file.
        path: String,
        /// The group.
        name: String,
    },
    /// A number is not a valid user or group ID.
    #[error("storage.files: {path:?}: {id} is not a user or group ID: correct it")]
    InvalidId {
        /// The file.
        path: String,
        /// The number.
        id: i64,
    },
    /// Something else is at the path.
    #[error("{path:?} is {found}, but the config asks for {wanted}: move it away first")]
    Obstructed {
        /// The path.
        path: String,
        /// What is there.
        found: &'static str,
        /// What the config asks for.
        wanted: &'static str,
    },
    /// A parent of a path is not a directory.
    #[error(
        "failed to create directory {directory:?} for {path:?}: not a directory but {found}: move it away first"
    )]
    NotADirectory {
        /// The path to write.
        path: String,
        /// The parent.
        directory: String,
        /// What is there.
        found: &'static str,
    },
    /// A parent is a link of another user, who could redirect the write.
    #[error(
        "{path:?} leads through the link {link:?}, which belongs to user {uid}: only root's links are followed; remove the link or make it root's"
    )]
    ForeignLink {
        /// The path to write.
        path: String,
        /// The link.
        link: String,
        /// The owner of the link.
        uid: u32,
    },
    /// Links form a loop.
    #[error("{path:?} leads through too many links: remove the loop")]
    TooManyLinks {
        /// The path to write.
        path: String,
    },
    /// A password hash would break `/etc/shadow`.
    #[error(
        "passwd.users: passwordHash of {user:?} contains a colon or a line break: give a hash in the format of crypt(3)"
    )]
    PasswordHash {
        /// The user.
        user: String,
    },
    /// A user of the config does not fit the machine.
    #[error("passwd.users: {field} of {user:?} {problem}")]
    User {
        /// The user.
        user: String,
        /// The field.
        field: &'static str,
        /// What is wrong, and the remedy.
        problem: String,
    },
    /// systemd would refuse to enable or disable a unit.
    #[error("error enabling units: {problem}")]
    UnitEnablement {
        /// What systemctl would print.
        problem: String,
    },
    /// A newer Machinist wrote the record of the previous state.
    #[error(transparent)]
    NewerBaseline(VersionedFileError),
    /// The record of the previous state is damaged.
    #[error(
        "{path}: {problem}: the record of the previous state is damaged: restore it, or remove it to continue without"
    )]
    InvalidBaseline {
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
    },
}
