//! Accepts connections, with limits against clients that only hold them open.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::routes::Routes;

/// The timeout of a TLS handshake. It is long enough for thousands at once.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// With more connections than this, each gets a small buffer.
const SMALL_BUFFER_THRESHOLD: usize = 64;
/// The timeout for the head of a request, also for idle connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum age of a connection. A client that reads slower is not a machine that boots.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(600);
/// How long responses in progress may continue after a stop signal.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// The maximum number of connections to a port.
const MAX_CONNECTIONS: usize = 20_000;
/// The maximum size of the head of a request.
const MAX_HEADER_SIZE: usize = 16 * 1024;

/// How much of a response is encrypted ahead of what the client has read. With thousands of connections, each may
/// use only little memory.
const fn tls_buffer_size(connections: usize) -> usize {
    if connections <= SMALL_BUFFER_THRESHOLD { 32 * 1024 } else { 4 * 1024 }
}

/// The client of a connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// The address of the client.
    pub address: SocketAddr,
    /// Whether the connection uses TLS.
    pub is_secure: bool,
    /// The client certificate, verified against the enrolment CA.
    pub certificate: Option<Arc<[u8]>>,
}

/// The number of connections per address. A clone shares the counts.
#[derive(Debug, Clone, Default)]
struct ConnectionCounts(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl ConnectionCounts {
    /// Counts one more connection of an address, unless it has `max` already. Dropping the permit ends the count.
    fn acquire(&self, address: IpAddr, max: usize) -> Option<ConnectionPermit> {
        let address = address.to_canonical();
        let mut all = self.0.lock();
        let count = all.entry(address).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(ConnectionPermit { all: self.clone(), address })
    }
}

/// A counted connection.
#[derive(Debug)]
struct ConnectionPermit {
    all: ConnectionCounts,
    address: IpAddr,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(count) = all.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.address);
            }
        }
    }
}

/// Serves a port until `stop`, then finishes responses in progress. `max_per_address` limits connections.
pub(super) async fn run(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    routes: Arc<Routes>,
    max_per_address: Option<usize>,
    stop: CancellationToken,
) {
    let connections = ConnectionCounts::default();
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
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
        let counted = match max_per_address.map(|max| connections.acquire(address.ip(), max)) {
            Some(None) => {
                tracing::debug!(%address, "too many connections from this address");
                continue;
            }
            counted => counted.flatten(),
        };
        let limit = tls_buffer_size(MAX_CONNECTIONS - slots.available_permits());
        let acceptor = acceptor.clone().map(|acceptor| (acceptor, limit));
        let (routes, watcher) = (Arc::clone(&routes), graceful.watcher());
        tokio::spawn(async move {
            serve_connection(stream, address, acceptor, routes, watcher).await;
            drop((slot, counted));
        });
    }
    drop(listener);
    // Connections that are still open after that are closed.
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, graceful.shutdown()).await;
}

async fn serve_connection(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: Option<(TlsAcceptor, usize)>,
    routes: Arc<Routes>,
    watcher: Watcher,
) {
    let _ = stream.set_nodelay(true);
    // Boxed: with thousands of connections, those without TLS must not reserve memory for it.
    match acceptor {
        None => {
            let peer = Peer { address, is_secure: false, certificate: None };
            Box::pin(serve_http(stream, peer, routes, watcher)).await;
        }
        Some(acceptor) => Box::pin(serve_tls(stream, address, acceptor, routes, watcher)).await,
    }
}

async fn serve_tls(
    stream: TcpStream,
    address: SocketAddr,
    (acceptor, limit): (TlsAcceptor, usize),
    routes: Arc<Routes>,
    watcher: Watcher,
) {
    let handshake = acceptor.accept_with(stream, |session| session.set_buffer_limit(Some(limit)));
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => {
            let first = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let certificate = first.map(|der| Arc::from(der.as_ref()));
            let peer = Peer { address, is_secure: true, certificate };
            Box::pin(serve_http(stream, peer, routes, watcher)).await;
        }
        Ok(Err(error)) => tracing::debug!(%address, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(%address, "TLS handshake timed out"),
    }
}

async fn serve_http<S>(stream: S, peer: Peer, routes: Arc<Routes>, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let address = peer.address;
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (routes, peer) = (Arc::clone(&routes), peer.clone());
        async move { Ok::<_, Infallible>(routes.handle(request, &peer).await) }
    });
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_SIZE);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(MAX_CONNECTION_AGE, watcher.watch(connection)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%address, %error, "connection ended"),
        Err(_) => tracing::debug!(%address, "connection exceeded the maximum age"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_an_address_are_counted() {
        let all = ConnectionCounts::default();
        let (one, other): (IpAddr, IpAddr) =
            ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let first = all.acquire(one, 2).unwrap();
        let second = all.acquire("::ffff:10.0.0.1".parse().unwrap(), 2).unwrap();
        assert!(all.acquire(one, 2).is_none());
        assert!(all.acquire(other, 2).is_some());
        drop(first);
        assert!(all.acquire(one, 2).is_some());
        drop(second);
        assert!(all.0.lock().is_empty());
    }
}
