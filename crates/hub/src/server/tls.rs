//! TLS: the server certificate, which can be replaced at run time, and the user of a client
//! certificate.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio_rustls::TlsAcceptor;

use crate::auth::certificates::{ClientCertificate, PemKeyPair};
use crate::router::PeerCertificate;

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The certificates are invalid.
    #[error("the server's certificate or CA is invalid: {0}")]
    Tls(String),
}

fn tls_error<E: std::fmt::Display>(error: E) -> ServerError {
    ServerError::Tls(format!("{error}"))
}

/// The server certificate. It can be replaced while the server runs.
#[derive(Debug, Clone)]
pub struct HubServingCertificate {
    current: Arc<RwLock<Arc<CertifiedKey>>>,
}

impl HubServingCertificate {
    /// Loads a certificate.
    ///
    /// # Errors
    /// The PEM is invalid.
    pub fn new(pair: &PemKeyPair) -> Result<Self, ServerError> {
        Ok(Self { current: Arc::new(RwLock::new(certified_key(pair)?)) })
    }

    /// Replaces the certificate for new connections.
    ///
    /// # Errors
    /// The PEM is invalid; the old certificate stays.
    pub fn replace(&self, pair: &PemKeyPair) -> Result<(), ServerError> {
        *self.current.write() = certified_key(pair)?;
        Ok(())
    }
}

impl ResolvesServerCert for HubServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read()))
    }
}

fn certified_key(pair: &PemKeyPair) -> Result<Arc<CertifiedKey>, ServerError> {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(tls_error)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(tls_error)?;
    CertifiedKey::from_der(chain, key, &crypto_provider()).map(Arc::new).map_err(tls_error)
}

fn crypto_provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// Accepts every client certificate during the handshake and verifies it per connection: a client
/// with an expired or foreign certificate then gets a 401 instead of a closed connection.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    trusted: Arc<dyn ClientCertVerifier>,
}

impl ClientVerifier {
    /// Returns the peer that a client's certificates name.
    pub(super) fn peer_certificate(&self, chain: &[CertificateDer<'_>]) -> Option<PeerCertificate> {
        let (first, rest) = chain.split_first()?;
        let trusted = self.trusted.verify_client_cert(first, rest, UnixTime::now());
        let read = trusted.ok().and_then(|_| ClientCertificate::from_der(first).ok());
        let known = read.filter(|certificate| !certificate.user.user.is_empty());
        Some(known.map_or(PeerCertificate::Untrusted, PeerCertificate::Verified))
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.trusted.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trusted.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trusted.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trusted.supported_verify_schemes()
    }
}

/// Returns the TLS acceptor and the verifier for clients of a CA.
pub(super) fn tls_acceptor(
    certificate: &HubServingCertificate,
    ca: &str,
) -> Result<(TlsAcceptor, Arc<ClientVerifier>), ServerError> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(root.map_err(tls_error)?).map_err(tls_error)?;
    }
    let provider = Arc::new(crypto_provider());
    let trusted =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(tls_error)?;
    let clients = Arc::new(ClientVerifier { trusted });
    let verifier = Arc::clone(&clients) as Arc<dyn ClientCertVerifier>;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(tls_error)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(certificate.clone()));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), clients))
}
