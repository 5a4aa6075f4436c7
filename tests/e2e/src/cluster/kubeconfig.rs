//! Kubeconfig files: server address, CA and client certificate.

use crate::pki::TestCa;
use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// TLS settings from a kubeconfig, for clients below the level of the kube client.
#[derive(Debug)]
pub struct KubeconfigTls {
    /// With the kubeconfig's client certificate.
    pub admin: ClientConfig,
    /// Without a client certificate.
    pub anonymous: ClientConfig,
}

impl KubeconfigTls {
    /// Reads the CA, the client certificate and its key from a kubeconfig.
    pub fn read(kubeconfig: &Path) -> Result<Self> {
        let text = fs::read_to_string(kubeconfig)?;
        let ca = decode_field(&text, "certificate-authority-data")?;
        let certificate = decode_field(&text, "client-certificate-data")?;
        let key = decode_field(&text, "client-key-data")?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&ca)?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = || {
            ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .map(|builder| builder.with_root_certificates(roots.clone()))
        };
        let admin = builder()?.with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(&certificate)?],
            PrivateKeyDer::from_pem_slice(&key)?,
        )?;
        Ok(Self { admin, anonymous: builder()?.with_no_client_auth() })
    }
}

/// A base64 field of a kubeconfig in YAML or JSON.
fn decode_field(kubeconfig: &str, field: &str) -> Result<Vec<u8>> {
    let (_, rest) = kubeconfig.split_once(field).with_context(|| format!("no {field}"))?;
    let value = rest.trim_start_matches(['"', ':', ' ']);
    let end = value.find(['"', '\n', ',']).unwrap_or(value.len());
    Ok(BASE64_STANDARD.decode(value[..end].trim())?)
}

/// Writes a kubeconfig for a user in groups.
pub(super) fn write(
    path: &Path,
    url: &str,
    authority: &TestCa,
    user: &str,
    groups: &[&str],
) -> Result<()> {
    let text = text(url, authority, user, groups)?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// The text of a kubeconfig for a user in groups.
pub(super) fn text(url: &str, authority: &TestCa, user: &str, groups: &[&str]) -> Result<String> {
    let identity = authority.issue(user, groups, &[])?;
    let data = |pem: &str| BASE64_STANDARD.encode(pem);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testkit", "cluster": {
            "server": url,
            "certificate-authority-data": data(authority.certificate()),
        }}],
        "users": [{"name": user, "user": {
            "client-certificate-data": data(&identity.certificate),
            "client-key-data": data(&identity.key),
        }}],
        "contexts": [{"name": "testkit", "context": {"cluster": "testkit", "user": user}}],
        "current-context": "testkit",
    });
    Ok(serde_json::to_string_pretty(&config)?)
}
