//! Why a change cannot be planned. Nothing has been written when one of these is given.

use super::tree::FsTreeError;
use crate::ignition::contents::ContentsError;
use crate::versioned::VersionedFileError;

/// Why a change cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The tree cannot be read.
    #[error(transparent)]
    Tree(#[from] FsTreeError),
    /// A path is not one that can be written safely.
    #[error(
        "storage.files: path {path:?} {problem}: write it as an absolute path without \"..\" and without a slash at its end"
    )]
    InvalidPath {
        /// The path.
        path: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The name of a unit or drop-in is not a plain name.
    #[error("systemd.units: the name {name:?} is not a plain file name: take out the slashes")]
    InvalidUnitName {
        /// The name.
        name: String,
    },
    /// The path belongs to the daemon itself.
    #[error(
        "storage.files: {path:?} is the daemon's own file: take it out of the config, the daemon writes it"
    )]
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
    /// A user is not known on the machine.
    #[error(
        "storage.files: failed to retrieve file ownership for file {path:?}: failed to retrieve UserID for username: {name}: give user.id, or a user of the machine's /etc/passwd"
    )]
    UnknownUser {
        /// The file.
        path: String,
        /// The user.
        name: String,
    },
    /// A group is not known on the machine.
    #[error(
        "storage.files: failed to retrieve file ownership for file {path:?}: failed to retrieve GroupID for group: {name}: give group.id, or a group of the machine's /etc/group"
    )]
    UnknownGroup {
        /// The file.
        path: String,
        /// The group.
        name: String,
    },
    /// A number is no user or group.
    #[error("storage.files: {path:?}: {id} is not the number of a user or group")]
    InvalidId {
        /// The file.
        path: String,
        /// The number.
        id: i64,
    },
    /// Something is in the way.
    #[error("{path:?} is {found}, and {wanted} is to be there: move it away first")]
    Obstructed {
        /// Where.
        path: String,
        /// What is there.
        found: &'static str,
        /// What is to be there.
        wanted: &'static str,
    },
    /// A folder on the way is none.
    #[error(
        "failed to create directory {folder:?} for {path:?}: not a directory but {found}: move it away first"
    )]
    NotADirectory {
        /// What should be written.
        path: String,
        /// The folder.
        folder: String,
        /// What is there.
        found: &'static str,
    },
    /// Somebody else could point the way elsewhere.
    #[error(
        "{path:?} leads through the link {link:?}, which belongs to user {uid}: only root's links are followed; remove the link or make it root's"
    )]
    ForeignLink {
        /// What should be written.
        path: String,
        /// The link.
        link: String,
        /// Whose it is.
        uid: u32,
    },
    /// Links that lead in a circle.
    #[error("{path:?} leads through too many links: remove the circle")]
    TooManyLinks {
        /// What should be written.
        path: String,
    },
    /// A password hash would break the file it is written to.
    #[error(
        "passwd.users: passwordHash of {user:?} holds a colon or a line end: give a hash as crypt(3) makes it"
    )]
    PasswordHash {
        /// The user.
        user: String,
    },
    /// systemd would refuse to enable or disable a unit.
    #[error("error enabling units: {problem}")]
    UnitEnablement {
        /// What it would say.
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
