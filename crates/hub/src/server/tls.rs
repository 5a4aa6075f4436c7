//! TLS: the server's certificate, which can change while it runs, and whom a client's certificate names.

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

use crate::auth::certificates::{self, Pair};
use crate::router::Peer;

/// The server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The certificates are not usable.
    #[error("the server's certificate or CA is not usable: {0}")]
    Tls(String),
}

fn bad<E: std::fmt::Display>(error: E) -> ServerError {
    ServerError::Tls(format!("{error}"))
}

/// The certificate of the server; it can be changed while the server runs.
#[derive(Debug, Clone)]
pub struct Certificate {
    current: Arc<RwLock<Arc<CertifiedKey>>>,
}

impl Certificate {
    /// Takes a certificate.
    ///
    /// # Errors
    /// The PEM is not usable.
    pub fn new(pair: &Pair) -> Result<Self, ServerError> {
        Ok(Self { current: Arc::new(RwLock::new(certified(pair)?)) })
    }

    /// New connections get this one from now on.
    ///
    /// # Errors
    /// The PEM is not usable; the old one stays.
    pub fn replace(&self, pair: &Pair) -> Result<(), ServerError> {
        *self.current.write() = certified(pair)?;
        Ok(())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read()))
    }
}

fn certified(pair: &Pair) -> Result<Arc<CertifiedKey>, ServerError> {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(bad)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(bad)?;
    CertifiedKey::from_der(chain, key, &provider()).map(Arc::new).map_err(bad)
}

fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// Takes every client certificate into the connection. Whether it is to be trusted is decided per
/// connection, so that a client with an old or a strange one is told 401 and not cut off.
#[derive(Debug)]
pub(super) struct AnyClient {
    trusted: Arc<dyn ClientCertVerifier>,
}

impl AnyClient {
    /// Whom the certificates of a client name.
    pub(super) fn peer(&self, chain: &[CertificateDer<'_>]) -> Option<Peer> {
        let (first, rest) = chain.split_first()?;
        let trusted = self.trusted.verify_client_cert(first, rest, UnixTime::now());
        let identity = trusted.ok().and_then(|_| certificates::identity(first).ok());
        let known = identity.filter(|identity| !identity.user.is_empty());
        Some(known.map_or(Peer::Untrusted, Peer::Known))
    }
}

impl ClientCertVerifier for AnyClient {
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

/// What takes connections of clients of a CA, and what says who they are.
pub(super) fn acceptor(
    certificate: &Certificate,
    ca: &str,
) -> Result<(TlsAcceptor, Arc<AnyClient>), ServerError> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(root.map_err(bad)?).map_err(bad)?;
    }
    let provider = Arc::new(provider());
    let trusted =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(bad)?;
    let clients = Arc::new(AnyClient { trusted });
    let verifier = Arc::clone(&clients) as Arc<dyn ClientCertVerifier>;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(bad)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(certificate.clone()));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), clients))
}
