//! What a backup file contains: the backup of the store, and before it, if it was asked for, the CA.
//!
//! ```text
//! [ magic "machinist-pki-v1", length u32 (little endian), JSON with certificate and key, SHA-256 of all before ]
//! the backup of the store, which checks itself
//! ```
//!
//! Only the CA is stored: `machinist up` issues the certificates of the hub and of its administrator again.

use std::io::{self, Cursor, Read, Write};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use machinist_hub::auth::certificates::{CertificateAuthority, PemKeyPair};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::data_dir::DataDirectory;

const PKI_MAGIC: &[u8; 16] = b"machinist-pki-v1";
/// The most bytes of the CA. A certificate and a key have a few thousand.
const MAX_PKI_BYTES: u32 = 1 << 20;

/// The CA as it is stored in a backup.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredCa {
    certificate: String,
    key: String,
}

/// Reads the CA of a data directory.
pub(crate) fn read_ca(directory: &DataDirectory) -> Result<PemKeyPair> {
    let read = |path: std::path::PathBuf| {
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let ca = PemKeyPair { certificate: read(directory.ca())?, key: read(directory.ca_key())? };
    check_ca(&ca).with_context(|| {
        format!("the CA in {} is damaged: it cannot be backed up", directory.pki().display())
    })?;
    Ok(ca)
}

/// Whether certificate and key belong together and can sign.
fn check_ca(ca: &PemKeyPair) -> Result<()> {
    ca.verify()?;
    CertificateAuthority::from_pem(ca)?;
    Ok(())
}

/// Writes the CA at the start of a backup.
pub(crate) fn write_ca(to: &mut impl Write, ca: &PemKeyPair) -> io::Result<()> {
    let stored = StoredCa { certificate: ca.certificate.clone(), key: ca.key.clone() };
    let json = serde_json::to_vec(&stored)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    let section = [&PKI_MAGIC[..], &length.to_le_bytes(), &json].concat();
    to.write_all(&section)?;
    to.write_all(&Sha256::digest(&section))
}

/// Reads the start of a backup: the CA, if it has one. Returns the rest as well, which is the backup of the store.
pub(crate) fn read_start<R: Read>(
    mut source: R,
    path: &Path,
) -> Result<(Option<PemKeyPair>, impl Read + use<R>)> {
    let damaged =
        |what: &str| format!("{} is damaged ({what}): use another backup", path.display());
    let mut magic = [0; PKI_MAGIC.len()];
    source.read_exact(&mut magic).with_context(|| damaged("it is too short"))?;
    if magic != *PKI_MAGIC {
        return Ok((None, Cursor::new(magic.to_vec()).chain(source)));
    }
    let mut length = [0; 4];
    source.read_exact(&mut length).with_context(|| damaged("it is truncated"))?;
    ensure!(u32::from_le_bytes(length) <= MAX_PKI_BYTES, damaged("the CA in it is too large"));
    let (mut json, mut digest) = (vec![0; u32::from_le_bytes(length) as usize], [0; 32]);
    source.read_exact(&mut json).with_context(|| damaged("the CA in it is truncated"))?;
    source.read_exact(&mut digest).with_context(|| damaged("the CA in it is truncated"))?;
    let section = [&magic[..], &length, &json].concat();
    if Sha256::digest(&section)[..] != digest {
        bail!(damaged("the checksum of the CA in it does not match"));
    }
    let StoredCa { certificate, key } =
        serde_json::from_slice(&json).with_context(|| damaged("the CA in it cannot be read"))?;
    let ca = PemKeyPair { certificate, key };
    check_ca(&ca).with_context(|| damaged("the CA in it cannot be used"))?;
    Ok((Some(ca), Cursor::new(Vec::new()).chain(source)))
}
