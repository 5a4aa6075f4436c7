//! The private key of a machine: created once, stored on its disk, never sent.

use anyhow::{Context as _, Result};
use machinist_core::hex::hex;
use machinist_core::serve::enrol::{self, KEY_FILE as FILE};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};
use sha2::{Digest as _, Sha256};

use super::disk::EnrolRoot;

/// A key with its certificate signing request.
pub(super) struct MachineKey {
    id: String,
    private_key: String,
    csr: String,
}

impl std::fmt::Debug for MachineKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachineKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl MachineKey {
    /// Loads the key of a machine, or creates it.
    pub(super) fn load_or_create(disk: &EnrolRoot, pool: &str) -> Result<Self> {
        let known = disk.read(FILE)?.and_then(|pem| String::from_utf8(pem).ok());
        let pair = match known.as_deref().map(KeyPair::from_pem) {
            Some(Ok(pair)) => pair,
            // There is no key, or a power loss damaged it.
            _ => {
                let pair = KeyPair::generate().context("cannot create a key")?;
                disk.write_private(FILE, pair.serialize_pem().as_bytes())?;
                pair
            }
        };
        let id = hex(&Sha256::digest(pair.der_bytes())[..16]);
        let (user, group) = enrol::subject(pool, &id);
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let request = params
            .serialize_request(&pair)
            .context("cannot create a certificate signing request")?;
        Ok(Self { id, private_key: pair.serialize_pem(), csr: request.pem()? })
    }

    /// The id of the key: the start of its hash.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The private key, as PEM.
    pub(super) fn private_key(&self) -> &str {
        &self.private_key
    }

    /// The certificate signing request, as PEM.
    pub(super) fn csr(&self) -> &str {
        &self.csr
    }
}
