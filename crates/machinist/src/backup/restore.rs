//! Creates a data directory from a backup, in steps that a crash may interrupt anywhere.
//!
//! The backup is verified completely before the first step. A marker exists from the first step to the last:
//! `machinist up` refuses a directory with a marker, and the next restore begins again. Nothing that was there before
//! is overwritten.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use machinist_hub::auth::certificates::PemKeyPair;
use machinist_hub::store::Store;

use super::encryption::{self, DecryptionKeys};
use super::{archive, file};
use crate::data_dir::{DataDirectory, write_private};
use crate::durable_file;

/// One step of a restore. Each is durable before the next one starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestoreStep {
    /// Remove what an interrupted restore left.
    RemovePartialStore,
    /// Write the key of the CA.
    WriteCaKey,
    /// Write the certificate of the CA.
    WriteCaCertificate,
    /// Create the store. It appears with a rename.
    CreateStore,
    /// Remove the marker.
    RemoveMarker,
}

/// The steps after the marker. The marker comes first, so that every prefix of them is recognised.
const STEPS: [RestoreStep; 5] = [
    RestoreStep::RemovePartialStore,
    RestoreStep::WriteCaKey,
    RestoreStep::WriteCaCertificate,
    RestoreStep::CreateStore,
    RestoreStep::RemoveMarker,
];

/// What was restored.
#[derive(Debug)]
pub(crate) struct RestoredBackup {
    /// Number of objects.
    pub(crate) objects: usize,
    /// Whether the directory has a CA now, from the backup or from before.
    pub(crate) has_ca: bool,
}

/// Restores a backup file into a data directory that has no store.
pub(crate) fn restore(
    path: &Path,
    keys: &DecryptionKeys,
    directory: &DataDirectory,
) -> Result<RestoredBackup> {
    let verified = file::verify(path, keys)?;
    let restore = PendingRestore { path, keys, directory, ca: verified.ca };
    restore.check_directory()?;
    let _marker = restore.lock_marker()?;
    for step in STEPS {
        restore.perform(step)?;
    }
    let has_ca = directory.ca().exists() && directory.ca_key().exists();
    Ok(RestoredBackup { objects: verified.contents.objects, has_ca })
}

/// Fails if a restore into the directory was interrupted.
pub(crate) fn check_complete(directory: &DataDirectory) -> Result<()> {
    let marker = directory.restore_marker();
    ensure!(
        !marker.exists(),
        "a restore into {} was interrupted ({} exists): run machinist hub restore again",
        directory.path().display(),
        marker.display()
    );
    Ok(())
}

struct PendingRestore<'a> {
    path: &'a Path,
    keys: &'a DecryptionKeys,
    directory: &'a DataDirectory,
    ca: Option<PemKeyPair>,
}

impl PendingRestore<'_> {
    /// Fails if something would be overwritten. The directory is not changed.
    fn check_directory(&self) -> Result<()> {
        let (directory, store) = (self.directory, self.directory.store());
        if !directory.restore_marker().exists()
            && let Ok(mut files) = fs::read_dir(&store)
            && files.any(|file| file.is_ok_and(|file| file.file_name() != "LOCK"))
        {
            bail!(
                "{} contains a store: restore into a fresh directory with --data-dir, or move this one away",
                directory.path().display()
            );
        }
        let Some(ca) = &self.ca else { return Ok(()) };
        // The same CA may be there: it was copied by hand, or an interrupted restore wrote it.
        for (path, contents) in self.ca_files(ca) {
            let found = match fs::read_to_string(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                found => found.with_context(|| format!("cannot read {}", path.display()))?,
            };
            ensure!(
                found == contents,
                "{} belongs to another CA than the one in {}: restore into a fresh directory with --data-dir, or move \
                 {} away",
                path.display(),
                self.path.display(),
                directory.pki().display()
            );
        }
        Ok(())
    }

    fn ca_files<'a>(&self, ca: &'a PemKeyPair) -> [(PathBuf, &'a str); 2] {
        [(self.directory.ca_key(), &ca.key), (self.directory.ca(), &ca.certificate)]
    }

    /// Writes the marker, and keeps other restores out while it is open.
    fn lock_marker(&self) -> Result<File> {
        self.directory.create()?;
        let marker = self.directory.restore_marker();
        let cannot_lock = || format!("cannot lock {}", marker.display());
        if !marker.exists() {
            write_private(&marker, &format!("{}\n", self.path.display()))?;
        }
        let file = File::open(&marker).with_context(cannot_lock)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(fs::TryLockError::WouldBlock) => bail!(
                "another process restores into {}: wait for it",
                self.directory.path().display()
            ),
            Err(fs::TryLockError::Error(error)) => Err(error).with_context(cannot_lock),
        }
    }

    fn perform(&self, step: RestoreStep) -> Result<()> {
        match step {
            RestoreStep::RemovePartialStore => {
                // No hub has used it: the marker keeps a hub from starting, and was written before the store.
                let store = self.directory.store();
                match fs::remove_dir_all(&store) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        Err(error).with_context(|| format!("cannot remove {}", store.display()))
                    }
                    _ => Ok(()),
                }
            }
            RestoreStep::WriteCaKey => self.write_ca_file(0),
            RestoreStep::WriteCaCertificate => self.write_ca_file(1),
            RestoreStep::CreateStore => {
                let source = encryption::open(self.path, self.keys)?;
                let (_, store) = archive::read_start(source, self.path)?;
                Ok(Store::restore_from(store, self.path, &self.directory.store())?)
            }
            RestoreStep::RemoveMarker => {
                let marker = self.directory.restore_marker();
                durable_file::remove(&marker)
                    .with_context(|| format!("cannot remove {}", marker.display()))?;
                Ok(())
            }
        }
    }

    fn write_ca_file(&self, index: usize) -> Result<()> {
        let Some(ca) = &self.ca else { return Ok(()) };
        let (path, contents) = &self.ca_files(ca)[index];
        write_private(path, contents)
    }
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
