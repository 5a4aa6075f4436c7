//! The certificate that a process serves HTTPS with. It can be replaced while the process runs: from files that change, or
//! by its owner. Used by the machine config server and by the metrics endpoint of every process.

mod reload;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

pub(crate) use reload::{read, watch_files};

/// A certificate and its key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct PemPair {
    /// The certificate and its intermediates.
    pub certificate: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
}

impl fmt::Debug for PemPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PemPair")
    }
}

/// The files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and its intermediates.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// A certificate in use. A clone shares it.
#[derive(Debug, Clone)]
pub struct ServingCertificate {
    current: Arc<RwLock<Arc<CertifiedKey>>>,
}

impl ServingCertificate {
    /// Parses a certificate.
    ///
    /// # Errors
    /// The PEM is invalid, or key and certificate do not match.
    pub fn new(pair: &PemPair) -> Result<Self> {
        Ok(Self { current: Arc::new(RwLock::new(certified_key(pair)?)) })
    }

    /// A new certificate that nobody has signed, and whose key exists only in memory.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub(crate) fn self_signed(name: &str) -> Result<Self> {
        let made = rcgen::generate_simple_self_signed([name.to_owned(), "localhost".to_owned()])
            .context("cannot create a self-signed certificate")?;
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        Self::new(&PemPair { certificate: certificate.into(), key: key.into() })
    }

    /// Replaces the certificate for new connections.
    ///
    /// # Errors
    /// The PEM is invalid; the old certificate stays in use.
    pub fn replace(&self, pair: &PemPair) -> Result<()> {
        let new = certified_key(pair)?;
        *self.current.write() = new;
        Ok(())
    }

    /// Accepts TLS connections of clients without a certificate.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("TLS versions")?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read()))
    }
}

fn certified_key(pair: &PemPair) -> Result<Arc<CertifiedKey>> {
    let chain = CertificateDer::pem_slice_iter(&pair.certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.context("the certificate is not PEM")?;
    // The error of the library might contain the key.
    let key = PrivateKeyDer::from_pem_slice(&pair.key).ok().context("the key is not a PEM key")?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map(Arc::new).context("certificate and key")
}
