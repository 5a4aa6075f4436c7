//! The hub over TLS: a short accept loop, client certificates, limits against hostile and slow
//! clients.
//!
//! | module | is |
//! |---|---|
//! | [`tls`] | the server's certificate, and whom a client's certificate names |
//! | [`limits`] | what a connection may take: time, memory, places |
//! | [`guests`] | connections of which nobody knows whose they are: the oldest makes room |

mod anonymous_connections;
mod limits;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

pub use limits::ConnectionLimits;
pub use tls::{HubServingCertificate, ServerError};

use crate::router::{Authenticated, PeerCertificate};
use anonymous_connections::{AnonymousConnection, AnonymousConnections};
use tls::ClientVerifier;

/// How long running requests may go on after the stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait when no connection can be accepted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// A server that is ready to run.
pub struct HubServer {
    acceptor: TlsAcceptor,
    client_verifier: Arc<ClientVerifier>,
    limits: ConnectionLimits,
}

impl std::fmt::Debug for HubServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl HubServer {
    /// A server with a certificate, for clients of a CA.
    ///
    /// # Errors
    /// The CA is not usable.
    pub fn new(certificate: &HubServingCertificate, ca: &str) -> Result<Self, ServerError> {
        let (acceptor, clients) = tls::tls_acceptor(certificate, ca)?;
        Ok(Self { acceptor, client_verifier: clients, limits: ConnectionLimits::default() })
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(self, limits: ConnectionLimits) -> Self {
        Self { limits, ..self }
    }

    /// Serves until it is stopped, then lets running requests end.
    pub async fn run(self, listener: TcpListener, router: Router, stop: CancellationToken) {
        let slots = Arc::new(Semaphore::new(self.limits.max_connections));
        let guests = AnonymousConnections::new(
            self.limits.max_anonymous_connections.min(self.limits.max_connections),
        );
        let server = Arc::new(self);
        let graceful = GracefulShutdown::new();
        loop {
            let (slot, stream, address) = tokio::select! {
                () = stop.cancelled() => break,
                accepted = accept(&listener, &slots, &guests) => accepted,
            };
            let (server, router, watcher) =
                (Arc::clone(&server), router.clone(), graceful.watcher());
            let guest = guests.register();
            tokio::spawn(async move {
                server.serve_connection(stream, address, router, guest, watcher).await;
                drop(slot);
            });
        }
        drop(listener);
        // Whoever still sends after that is cut off.
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, graceful.shutdown()).await;
    }

    async fn serve_connection(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        router: Router,
        guest: AnonymousConnection,
        watcher: Watcher,
    ) {
        self.limits.configure_socket(&stream);
        let handshake =
            tokio::time::timeout(self.limits.handshake_timeout, self.acceptor.accept(stream));
        let stream = tokio::select! {
            stream = handshake => stream,
            () = guest.evicted() => return tracing::debug!(%address, "made room for others"),
        };
        let stream = match stream {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%address, %error, "no TLS connection"),
            Err(_) => return tracing::debug!(%address, "TLS handshake took too long"),
        };
        let tls = stream.get_ref().1;
        let peer =
            self.client_verifier.peer_certificate(tls.peer_certificates().unwrap_or_default());
        let http2 = tls.alpn_protocol() == Some(b"h2");
        if matches!(peer, Some(PeerCertificate::Trusted(_))) {
            guest.mark_authenticated();
        }
        let (guest, spoke) = (Arc::new(guest), Arc::new(AtomicBool::new(false)));
        let (known, heard) = (Arc::clone(&guest), Arc::clone(&spoke));
        let service = router
            .map_request(move |mut request: http::Request<hyper::body::Incoming>| {
                heard.store(true, Ordering::Relaxed);
                if let Some(peer) = &peer {
                    request.extensions_mut().insert(peer.clone());
                }
                request
            })
            .map_response(move |response: axum::response::Response| {
                if response.extensions().get::<Authenticated>().is_some() {
                    known.mark_authenticated();
                }
                response
            });
        let builder = self.limits.connection_builder(http2);
        let connection =
            builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        tokio::select! {
            ended = watcher.watch(connection.into_owned()) => {
                if let Err(error) = ended {
                    tracing::debug!(%address, %error, "connection ended");
                }
            }
            () = guest.evicted() => tracing::debug!(%address, "made room for others"),
            () = wait_until_idle(self.limits.first_request_timeout, &spoke) => {
                tracing::debug!(%address, "no request in time");
            }
        }
    }
}

/// The next connection, when there is a place for it. Where there is none, or no file is left for
/// it, a connection of somebody unknown has to go.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    guests: &AnonymousConnections,
) -> (Option<OwnedSemaphorePermit>, TcpStream, SocketAddr) {
    if slots.available_permits() == 0 {
        guests.evict_oldest();
    }
    let slot = Arc::clone(slots).acquire_owned().await.ok(); // it is never closed
    loop {
        match listener.accept().await {
            Ok((stream, address)) => return (slot, stream, address),
            Err(error) => {
                let room = guests.evict_oldest();
                tracing::warn!(%error, room, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Ends when a client has asked nothing for so long since it came.
async fn wait_until_idle(limit: Duration, spoke: &AtomicBool) {
    tokio::time::sleep(limit).await;
    if spoke.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}
