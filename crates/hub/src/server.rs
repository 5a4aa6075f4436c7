//! The hub over TLS: a short accept loop, client certificates, limits against slow clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::auth::certificates::{self, Pair};
use crate::router::Peer;

/// A connection must have said who it is in this time.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The head of a request must be there in this time after the last one; longer than clients keep
/// idle connections, so that it is they who close them.
const HEAD: Duration = Duration::from_secs(120);
/// How long running requests may go on after the stop.
const DRAIN: Duration = Duration::from_secs(5);
/// As many connections at once.
const CONNECTIONS: usize = 20_000;
/// As many requests at once on one connection.
const STREAMS: u32 = 250;

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
struct AnyClient {
    trusted: Arc<dyn ClientCertVerifier>,
}

impl AnyClient {
    /// Whom the certificates of a client name.
    fn peer(&self, chain: &[CertificateDer<'_>]) -> Option<Peer> {
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

/// A server that is ready to run.
#[derive(Debug)]
pub struct Server {
    acceptor: TlsAcceptorDebug,
    clients: Arc<AnyClient>,
}

/// The acceptor has no `Debug` of its own.
struct TlsAcceptorDebug(TlsAcceptor);

impl std::fmt::Debug for TlsAcceptorDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsAcceptor")
    }
}

impl Server {
    /// A server with a certificate, for clients of a CA.
    ///
    /// # Errors
    /// The CA is not usable.
    pub fn new(certificate: &Certificate, ca: &str) -> Result<Self, ServerError> {
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
        Ok(Self { acceptor: TlsAcceptorDebug(TlsAcceptor::from(Arc::new(config))), clients })
    }

    /// Serves until it is stopped, then lets running requests end.
    pub async fn run(self, listener: TcpListener, router: Router, stop: CancellationToken) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        let server = Arc::new(self);
        let graceful = GracefulShutdown::new();
        loop {
            let accept = async {
                let slot = Arc::clone(&slots).acquire_owned().await;
                (slot, listener.accept().await)
            };
            let (slot, accepted) = tokio::select! {
                () = stop.cancelled() => break,
                accepted = accept => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let (server, router, watcher) =
                (Arc::clone(&server), router.clone(), graceful.watcher());
            tokio::spawn(async move {
                server.connection(stream, address, router, watcher).await;
                drop(slot);
            });
        }
        drop(listener);
        // Whoever still sends after that is cut off.
        let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
    }

    async fn connection(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        router: Router,
        watcher: hyper_util::server::graceful::Watcher,
    ) {
        let _ = stream.set_nodelay(true);
        let stream = match tokio::time::timeout(HANDSHAKE, self.acceptor.0.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%address, %error, "no TLS connection"),
            Err(_) => return tracing::debug!(%address, "TLS handshake took too long"),
        };
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let peer = self.clients.peer(chain);
        let service =
            router.map_request(move |mut request: http::Request<hyper::body::Incoming>| {
                if let Some(peer) = &peer {
                    request.extensions_mut().insert(peer.clone());
                }
                request
            });
        let builder = builder();
        let connection =
            builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        if let Err(error) = watcher.watch(connection.into_owned()).await {
            tracing::debug!(%address, %error, "connection ended");
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}
