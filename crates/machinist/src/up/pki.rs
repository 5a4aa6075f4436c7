//! The CA and the certificates of the hub: created on the first start and renewed before they expire.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use machinist_hub::auth::ADMIN_GROUP;
use machinist_hub::auth::certificates::{CertificateAuthority, CertificateInfo, PemKeyPair};

use crate::data_dir::{DataDirectory, write_private};

/// All keys and certificates.
#[derive(Debug, Clone)]
pub struct Pki {
    /// The CA.
    pub ca: PemKeyPair,
    /// The certificate of the API server.
    pub server: PemKeyPair,
    /// The client certificate of the administrator.
    pub admin: PemKeyPair,
}

impl Pki {
    /// Reads the certificates, and creates those that are missing, lack a name or expire soon.
    ///
    /// # Errors
    /// A file cannot be read or written, or is damaged.
    pub fn open(directory: &DataDirectory, names: &[String]) -> Result<Self> {
        let files = |name: &str| PairFiles {
            certificate: directory.pki().join(format!("{name}.crt")),
            key: directory.pki().join(format!("{name}.key")),
        };
        let ca = match files("ca").read()? {
            Some(pair) => pair,
            None => files("ca").write(CertificateAuthority::generate("machinist")?)?,
        };
        let issuer = CertificateAuthority::from_pem(&ca)
            .context("the CA in the data directory is damaged")?;
        let server = match files("server").read()? {
            Some(pair) if is_still_valid(&pair, names) => pair,
            _ => files("server").write(issuer.issue_server("machinist", names)?)?,
        };
        let admin = match files("admin").read()? {
            Some(pair) if is_still_valid(&pair, &[]) => pair,
            _ => files("admin").write(issuer.issue_client("admin", ADMIN_GROUP)?)?,
        };
        Ok(Self { ca, server, admin })
    }
}

/// Whether a certificate has all names and does not expire soon.
fn is_still_valid(pair: &PemKeyPair, names: &[String]) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    CertificateInfo::parse(&pair.certificate)
        .is_ok_and(|validity| !validity.needs_renewal(now, names))
}

struct PairFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl PairFiles {
    fn read(&self) -> Result<Option<PemKeyPair>> {
        if !self.certificate.exists() || !self.key.exists() {
            return Ok(None);
        }
        let read = |path: &PathBuf| {
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(Some(PemKeyPair { certificate: read(&self.certificate)?, key: read(&self.key)? }))
    }

    /// Writes the certificate last: without it, the pair is created again.
    fn write(&self, pair: PemKeyPair) -> Result<PemKeyPair> {
        write_private(&self.key, &pair.key)?;
        write_private(&self.certificate, &pair.certificate)?;
        Ok(pair)
    }
}

/// The names in the certificate of the server: loopback, the listen address and `--san`.
#[must_use]
pub fn names(address: SocketAddr, more: &[String]) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(ToOwned::to_owned).to_vec();
    for name in ["kubernetes", "kubernetes.default", "kubernetes.default.svc"] {
        names.push(name.to_owned());
    }
    if !is_unspecified(address.ip()) {
        names.push(address.ip().to_string());
    }
    names.extend(more.iter().cloned());
    names.sort();
    names.dedup();
    names
}

/// Whether the address stands for all interfaces.
#[must_use]
pub fn is_unspecified(ip: IpAddr) -> bool {
    ip.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_kept_until_they_must_change() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = DataDirectory::at(temporary.path().join("data"));
        directory.create().unwrap();
        let local: SocketAddr = "127.0.0.1:6443".parse().unwrap();
        let first = Pki::open(&directory, &names(local, &[])).unwrap();
        let again = Pki::open(&directory, &names(local, &[])).unwrap();
        assert_eq!(first.ca.certificate, again.ca.certificate);
        assert_eq!(first.server.certificate, again.server.certificate);
        let more = Pki::open(&directory, &names(local, &["hub.example.com".into()])).unwrap();
        assert_eq!(first.ca.certificate, more.ca.certificate);
        assert_ne!(first.server.certificate, more.server.certificate);
        assert_eq!(first.admin.certificate, more.admin.certificate);
    }

    #[test]
    fn the_server_has_the_address_it_listens_on() {
        let found = names("10.0.0.5:1".parse().unwrap(), &[]);
        assert!(found.contains(&"10.0.0.5".to_owned()));
        let found = names("0.0.0.0:1".parse().unwrap(), &["a".into()]);
        assert!(!found.contains(&"0.0.0.0".to_owned()) && found.contains(&"a".to_owned()));
    }
}
