//! Backups of a hub as files: written, encrypted, verified and restored.
//!
//! | module | is |
//! |---|---|
//! | [`encryption`] | the `age` format: to recipients or a passphrase, and back |
//! | [`archive`] | what a file contains: optionally the CA, then the backup of the store |
//! | [`file`] | a backup file: written beside its place, verified, then renamed |
//! | [`restore`] | a data directory from a backup file, in steps that a crash may interrupt |
//!
//! It takes the store's backup as a stream and knows neither the API nor the schedule. Called by `machinist hub backup` and
//! `restore`, and by the daily backup of `machinist up`.

pub(crate) mod archive;
pub(crate) mod encryption;
pub(crate) mod file;
pub(crate) mod restore;
