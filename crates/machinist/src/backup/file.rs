//! A backup file: written beside its place, read back and verified, then renamed.
//!
//! A file with the name of a backup is therefore complete, synced, and was readable once.

use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use machinist_hub::auth::certificates::PemKeyPair;
use machinist_hub::{DataCheck, check_backup};

use super::archive;
use super::encryption::{self, DecryptionKeys, Encryption};
use crate::durable_file::{self, PartFile};

/// How much is copied at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A backup that was read back.
#[derive(Debug)]
pub(crate) struct VerifiedBackup {
    /// What it contains.
    pub(crate) contents: DataCheck,
    /// The CA in it.
    pub(crate) ca: Option<PemKeyPair>,
}

/// A file that was written.
#[derive(Debug)]
pub(crate) struct WrittenBackup {
    /// Its size.
    pub(crate) bytes: u64,
    /// What was read back.
    pub(crate) verified: VerifiedBackup,
}

/// Writes a backup of a store, with the CA if one is given. The file appears only if it was verified.
pub(crate) fn write(
    path: &Path,
    source: &mut impl Read,
    ca: Option<&PemKeyPair>,
    encryption: &Encryption,
) -> Result<WrittenBackup> {
    let cannot_write = || format!("cannot write {}", path.display());
    let part = PartFile::begin(path, durable_file::PRIVATE).with_context(cannot_write)?;
    let (mut writer, keys) = encryption.encrypt(part).with_context(cannot_write)?;
    if let Some(ca) = ca {
        archive::write_ca(&mut writer, ca).with_context(cannot_write)?;
    }
    copy(source, &mut writer, path)?;
    let part = writer.finish().with_context(cannot_write)?;
    let bytes = part.sync().with_context(cannot_write)?;
    let verified = verify(part.part(), &keys).with_context(|| {
        format!("the backup that was written for {} cannot be read back", path.display())
    })?;
    part.rename().with_context(cannot_write)?;
    Ok(WrittenBackup { bytes, verified })
}

/// Reads all of a backup file.
pub(crate) fn verify(path: &Path, keys: &DecryptionKeys) -> Result<VerifiedBackup> {
    let (ca, store) = archive::read_start(encryption::open(path, keys)?, path)?;
    Ok(VerifiedBackup { contents: check_backup(store, path)?, ca })
}

fn copy(source: &mut impl Read, to: &mut impl Write, path: &Path) -> Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match source.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => to
                .write_all(&chunk[..length])
                .with_context(|| format!("cannot write {}", path.display()))?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("the hub stopped sending the backup"),
        }
    }
}
