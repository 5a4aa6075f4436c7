//! The machine's own key: made once, kept on its disk, never sent.

use anyhow::{Context as _, Result};
use machinist_core::serve::enrol::{self, KEY_FILE as FILE};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};
use sha2::{Digest as _, Sha256};

use super::disk::EnrolRoot;

/// A key with the request for its certificate.
pub(super) struct MachineKey {
    id: String,
    private_key: String,
    csr: String,
}

impl std::fmt::Debug for MachineKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

impl MachineKey {
    /// The key of a machine; it is made if there is none.
    pub(super) fn load_or_create(disk: &EnrolRoot, pool: &str) -> Result<Self> {
        let known = disk.read(FILE)?.and_then(|pem| String::from_utf8(pem).ok());
        let pair = match known.as_deref().map(KeyPair::from_pem) {
            Some(Ok(pair)) => pair,
            // None, or one that a power cut has damaged.
            _ => {
                let pair = KeyPair::generate().context("cannot make a key")?;
                disk.write_private(FILE, pair.serialize_pem().as_bytes())?;
                pair
            }
        };
        let hash = Sha256::digest(pair.der_bytes());
        let id: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let (user, group) = enrol::subject(pool, &id);
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let request = params.serialize_request(&pair).context("cannot ask for a certificate")?;
        Ok(Self { id, private_key: pair.serialize_pem(), csr: request.pem()? })
    }

    /// What tells it from others.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The key itself, as PEM.
    pub(super) fn private_key(&self) -> &str {
        &self.private_key
    }

    /// The request for a certificate, as PEM.
    pub(super) fn csr(&self) -> &str {
        &self.csr
    }
}
