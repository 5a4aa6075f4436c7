//! Serves the hub over TLS, with client certificates and limits against hostile and slow clients.
//!
//! | module | purpose |
//! |---|---|
//! | [`tls`] | the server certificate, and the user of a client certificate |
//! | [`limits`] | time, memory and number of connections |
//! | [`open_connections`] | the share of anonymous clients, of each machine and of each token |
//! | [`unread_responses`] | connections that request and do not read |
//!
//! Called by `machinist up`; authorization is the router's task.

mod limits;
mod open_connections;
mod tls;
mod unread_responses;

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

use crate::failure_log::FailureLog;
use crate::router::{Authenticated, PeerAddress, PeerCertificate, UpgradeTasks};
use open_connections::{OpenConnection, OpenConnections};
use tls::ClientVerifier;
use unread_responses::UnreadResponses;

/// How long open requests may run after a stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The task under which a failed accept is reported.
const ACCEPT_TASK: &str = "accept a connection to the API";

/// A configured server.
pub struct HubServer {
    acceptor: TlsAcceptor,
    client_verifier: Arc<ClientVerifier>,
    limits: ConnectionLimits,
    failures: FailureLog,
}

impl std::fmt::Debug for HubServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl HubServer {
    /// Creates a server with a certificate, for the clients of a CA.
    ///
    /// # Errors
    /// The CA is invalid.
    pub fn new(certificate: &HubServingCertificate, ca: &str) -> Result<Self, ServerError> {
        let (acceptor, clients) = tls::tls_acceptor(certificate, ca)?;
        Ok(Self {
            acceptor,
            client_verifier: clients,
            limits: ConnectionLimits::default(),
            failures: FailureLog::default(),
        })
    }

    /// Reports connections that cannot be accepted to the log of the process.
    #[must_use]
    pub fn reporting_to(self, failures: FailureLog) -> Self {
        Self { failures, ..self }
    }

    /// Replaces the limits. Tests need low ones.
    #[cfg(any(test, feature = "fuzzing"))]
    #[must_use]
    pub fn with_limits(self, limits: ConnectionLimits) -> Self {
        Self { limits, ..self }
    }

    /// Serves until it is stopped, then lets open requests finish.
    pub async fn run(self, listener: TcpListener, router: Router, stop: CancellationToken) {
        let slots = Arc::new(Semaphore::new(self.limits.max_connections));
        let connections = OpenConnections::new(self.limits);
        let server = Arc::new(self);
        let graceful = GracefulShutdown::new();
        loop {
            let (slot, stream, address) = tokio::select! {
                () = stop.cancelled() => break,
                accepted = accept(&listener, &slots, &connections, &server.failures) => accepted,
            };
            let (server, router, watcher) =
                (Arc::clone(&server), router.clone(), graceful.watcher());
            let registration = connections.register();
            tokio::spawn(async move {
                server.serve_connection(stream, address, router, registration, watcher).await;
                drop(slot);
            });
        }
        drop(listener);
        // Connections that are still open after that are closed.
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, graceful.shutdown()).await;
    }

    async fn serve_connection(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        router: Router,
        registration: OpenConnection,
        watcher: Watcher,
    ) {
        self.limits.configure_socket(&stream);
        let handshake =
            tokio::time::timeout(self.limits.handshake_timeout, self.acceptor.accept(stream));
        let stream = tokio::select! {
            stream = handshake => stream,
            () = registration.evicted() => return tracing::debug!(%address, "connection evicted"),
        };
        let stream = match stream {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%address, %error, "TLS handshake failed"),
            Err(_) => return tracing::debug!(%address, "TLS handshake timed out"),
        };
        let tls = stream.get_ref().1;
        let peer =
            self.client_verifier.peer_certificate(tls.peer_certificates().unwrap_or_default());
        let http2 = tls.alpn_protocol() == Some(b"h2");
        if let Some(PeerCertificate::Verified(certificate)) = &peer {
            registration.authenticated_as(&certificate.user);
        }
        let (registration, has_requested) =
            (Arc::new(registration), Arc::new(AtomicBool::new(false)));
        let (authenticating, request_seen) =
            (Arc::clone(&registration), Arc::clone(&has_requested));
        let unread = UnreadResponses::default();
        let upgraded = UpgradeTasks::default();
        let tasks = upgraded.clone();
        let service = router
            .map_request(move |mut request: http::Request<hyper::body::Incoming>| {
                request_seen.store(true, Ordering::Relaxed);
                request.extensions_mut().insert(PeerAddress(address.ip().to_canonical()));
                request.extensions_mut().insert(tasks.clone());
                if let Some(peer) = &peer {
                    request.extensions_mut().insert(peer.clone());
                }
                request
            })
            .map_response(move |response: axum::response::Response| {
                if let Some(Authenticated(user)) = response.extensions().get() {
                    authenticating.authenticated_as(user);
                }
                unread.count(response, || authenticating.evict())
            });
        let builder = self.limits.connection_builder(http2);
        let connection = builder.serve_connection_with_upgrades(
            TokioIo::new(stream),
            TowerToHyperService::new(service),
        );
        let connection = watcher.watch(connection.into_owned());
        let until_closed = async {
            if let Err(error) = connection.await {
                tracing::debug!(%address, %error, "connection result");
            }
            // A WebSocket is still this connection, with its slot and its group.
            upgraded.finish().await;
        };
        tokio::select! {
            () = until_closed => {}
            () = registration.evicted() => tracing::debug!(%address, "connection evicted"),
            () = wait_until_idle(self.limits.first_request_timeout, &has_requested) => {
                tracing::debug!(%address, "no request before the timeout");
            }
        }
        upgraded.abort();
    }
}

/// Accepts the next connection once a slot is free. Without a free slot or file descriptor, another connection is
/// evicted.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    connections: &OpenConnections,
    failures: &FailureLog,
) -> (Option<OwnedSemaphorePermit>, TcpStream, SocketAddr) {
    if slots.available_permits() == 0 {
        connections.evict_oldest();
    }
    let slot = Arc::clone(slots).acquire_owned().await.ok(); // the semaphore is never closed
    let mut has_failed = false;
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                if has_failed {
                    failures.succeeded(ACCEPT_TASK, "");
                }
                return (slot, stream, address);
            }
            Err(error) => {
                has_failed = true;
                connections.evict_oldest();
                failures.failed(ACCEPT_TASK, "", &error.to_string());
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Completes when a client has sent no request for that long since it connected.
async fn wait_until_idle(limit: Duration, has_requested: &AtomicBool) {
    tokio::time::sleep(limit).await;
    if has_requested.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}
