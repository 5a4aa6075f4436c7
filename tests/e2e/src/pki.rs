//! Certificates: one CA per lab, which signs server and client certificates.

use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A certificate authority for one test.
#[derive(Debug)]
pub struct TestCa {
    certificate: String,
    key: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, both as PEM.
#[derive(Debug, Clone)]
pub struct TestCertificate {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl TestCa {
    /// A new CA.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = subject(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let pair = KeyPair::generate()?;
        let certificate = params.self_signed(&pair)?.pem();
        let key = pair.serialize_pem();
        Ok(Self { certificate, key, issuer: Issuer::new(params, pair) })
    }

    /// The CA's certificate as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The CA's certificate as a `data:` URL, as Ignition expects it.
    pub fn data_url(&self) -> String {
        format!("data:text/plain;base64,{}", BASE64_STANDARD.encode(&self.certificate))
    }

    /// The CA itself, for processes that sign with it.
    pub fn identity(&self) -> TestCertificate {
        TestCertificate { certificate: self.certificate.clone(), key: self.key.clone() }
    }

    /// A certificate for a user (CN) in groups (O), for clients and, with the given names and addresses, for servers.
    pub fn issue(&self, user: &str, groups: &[&str], names: &[&str]) -> Result<TestCertificate> {
        let names = names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = subject(user, groups);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let pair = KeyPair::generate()?;
        let certificate = params.signed_by(&pair, &self.issuer)?.pem();
        Ok(TestCertificate { certificate, key: pair.serialize_pem() })
    }
}

impl TestCertificate {
    /// Writes `NAME.crt` and `NAME.key` into a directory. Returns their paths.
    pub fn write_files(&self, dir: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
        let path = |end: &str| dir.join(format!("{name}.{end}"));
        let (certificate, key) = (path("crt"), path("key"));
        fs::write(&certificate, &self.certificate)
            .with_context(|| format!("write {}", certificate.display()))?;
        fs::write(&key, &self.key).with_context(|| format!("write {}", key.display()))?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
        Ok((certificate, key))
    }
}

fn subject(user: &str, groups: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for group in groups {
        name.push(DnType::OrganizationName, *group);
    }
    name.push(DnType::CommonName, user);
    name
}
