//! Connections: a short accept loop, and limits against those who only hold them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::routes::Routes;

/// The TLS handshake must be over in this time, also when thousands come at once.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// With more connections than this, thrift comes before speed.
const SMALL_BUFFER_THRESHOLD: usize = 64;
/// The head of a request must be there in this time, also after the last request of a connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// A connection must end in this time: whoever reads slower than that holds it for another reason.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(600);
/// How long running answers may go on after the stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// As many connections at once on a port.
const MAX_CONNECTIONS: usize = 20_000;
/// The head of a request is at most this large.
const MAX_HEADER_SIZE: usize = 16 * 1024;

/// How much of an answer is encrypted ahead of what the other side has taken: whoever serves thousands cannot have
/// much of each in memory.
const fn tls_buffer_size(connections: usize) -> usize {
    if connections <= SMALL_BUFFER_THRESHOLD { 32 * 1024 } else { 4 * 1024 }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// Where it is.
    pub address: SocketAddr,
    /// Whether nobody on the way can read along.
    pub is_secure: bool,
    /// The certificate that it has shown; it is one of ours.
    pub certificate: Option<Arc<[u8]>>,
}

/// The connections that each address has. A clone counts the same ones.
#[derive(Debug, Clone, Default)]
struct ConnectionCounts(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl ConnectionCounts {
    /// One more of an address, unless it has so many already. It ends when what is returned is dropped.
    fn acquire(&self, address: IpAddr, most: usize) -> Option<ConnectionPermit> {
        let address = address.to_canonical();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(ConnectionPermit { all: self.clone(), address })
    }
}

/// A connection that is counted.
#[derive(Debug)]
struct ConnectionPermit {
    all: ConnectionCounts,
    address: IpAddr,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.address);
            }
        }
    }
}

/// Serves a port until it is stopped, then lets running answers end. `most` limits the connections of one address.
pub(super) async fn run(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    pages: Arc<Routes>,
    most: Option<usize>,
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
        let counted = match most.map(|most| connections.acquire(address.ip(), most)) {
            Some(None) => {
                tracing::debug!(%address, "too many connections from this address");
                continue;
            }
            counted => counted.flatten(),
        };
        let limit = tls_buffer_size(MAX_CONNECTIONS - slots.available_permits());
        let acceptor = acceptor.clone().map(|acceptor| (acceptor, limit));
        let (pages, watcher) = (Arc::clone(&pages), graceful.watcher());
        tokio::spawn(async move {
            serve_connection(stream, address, acceptor, pages, watcher).await;
            drop((slot, counted));
        });
    }
    drop(listener);
    // Whoever still reads after that is cut off.
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, graceful.shutdown()).await;
}

async fn serve_connection(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: Option<(TlsAcceptor, usize)>,
    pages: Arc<Routes>,
    watcher: Watcher,
) {
    let _ = stream.set_nodelay(true);
    // Boxed: there may be thousands, and those without TLS need not have room for it.
    match acceptor {
        None => {
            let peer = Peer { address, is_secure: false, certificate: None };
            Box::pin(serve_http(stream, peer, pages, watcher)).await;
        }
        Some(acceptor) => Box::pin(serve_tls(stream, address, acceptor, pages, watcher)).await,
    }
}

async fn serve_tls(
    stream: TcpStream,
    address: SocketAddr,
    (acceptor, limit): (TlsAcceptor, usize),
    pages: Arc<Routes>,
    watcher: Watcher,
) {
    let handshake = acceptor.accept_with(stream, |session| session.set_buffer_limit(Some(limit)));
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let certificate = shown.map(|der| Arc::from(der.as_ref()));
            let peer = Peer { address, is_secure: true, certificate };
            Box::pin(serve_http(stream, peer, pages, watcher)).await;
        }
        Ok(Err(error)) => tracing::debug!(%address, %error, "no TLS connection"),
        Err(_) => tracing::debug!(%address, "TLS handshake took too long"),
    }
}

async fn serve_http<S>(stream: S, peer: Peer, pages: Arc<Routes>, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let address = peer.address;
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (pages, peer) = (Arc::clone(&pages), peer.clone());
        async move { Ok::<_, Infallible>(pages.handle(request, &peer).await) }
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
        Err(_) => tracing::debug!(%address, "connection lived too long"),
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
        assert!(all.0.lock().unwrap().is_empty());
    }
}
