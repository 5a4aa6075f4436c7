//! Accepts connections, with limits against clients that only hold them open.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use machinist_hub::failure_log::FailureLog;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::routes::Routes;
use crate::listen::connections::{ConnectionGuard, ConnectionLimits, Connections};

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
/// The limits of a port. An address is limited to its fair share only while the port is busy.
pub(super) const CONNECTION_LIMITS: ConnectionLimits =
    ConnectionLimits { total: 20_000, busy: 10_000, fair_share: 256, per_address: None };
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

/// Serves a port until `stop`, then finishes responses in progress.
pub(super) async fn run(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    routes: Arc<Routes>,
    limits: ConnectionLimits,
    failures: FailureLog,
    stop: CancellationToken,
) {
    let connections = Connections::new(limits);
    let graceful = GracefulShutdown::new();
    loop {
        let (stream, address) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = crate::listen::accept(&listener, &failures) => accepted,
        };
        let Some(place) = connections.admit(address.ip()) else {
            tracing::debug!(%address, "too many connections");
            continue;
        };
        let limit = tls_buffer_size(connections.count());
        let acceptor = acceptor.clone().map(|acceptor| (acceptor, limit));
        let (routes, watcher) = (Arc::clone(&routes), graceful.watcher());
        let place = Arc::new(place);
        tokio::spawn(async move {
            let serve = serve_connection(stream, address, acceptor, routes, watcher, &place);
            tokio::select! {
                () = serve => {}
                () = place.evicted() => {
                    tracing::debug!(%address, "idle connection closed for another one");
                }
            }
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
    place: &Arc<ConnectionGuard>,
) {
    let _ = stream.set_nodelay(true);
    // Boxed: with thousands of connections, those without TLS must not reserve memory for it.
    match acceptor {
        None => {
            let peer = Peer { address, is_secure: false, certificate: None };
            Box::pin(serve_http(stream, peer, routes, watcher, place)).await;
        }
        Some(acceptor) => {
            Box::pin(serve_tls(stream, address, acceptor, routes, watcher, place)).await;
        }
    }
}

async fn serve_tls(
    stream: TcpStream,
    address: SocketAddr,
    (acceptor, limit): (TlsAcceptor, usize),
    routes: Arc<Routes>,
    watcher: Watcher,
    place: &Arc<ConnectionGuard>,
) {
    let handshake = acceptor.accept_with(stream, |session| session.set_buffer_limit(Some(limit)));
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => {
            let first = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let certificate = first.map(|der| Arc::from(der.as_ref()));
            let peer = Peer { address, is_secure: true, certificate };
            Box::pin(serve_http(stream, peer, routes, watcher, place)).await;
        }
        Ok(Err(error)) => tracing::debug!(%address, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(%address, "TLS handshake timed out"),
    }
}

async fn serve_http<S>(
    stream: S,
    peer: Peer,
    routes: Arc<Routes>,
    watcher: Watcher,
    place: &Arc<ConnectionGuard>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let address = peer.address;
    let place = Arc::clone(place);
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (routes, peer) = (Arc::clone(&routes), peer.clone());
        let working = place.begin_request();
        async move {
            let response = routes.handle(request, &peer).await;
            // A client that reads its response slowly may be closed for another, like an idle one.
            drop(working);
            Ok::<_, Infallible>(response)
        }
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
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpSocket;

    use super::super::access::AccessControl;
    use super::super::{AccessOptions, ConfigSource, ManifestDirectory, ServerMetrics};
    use super::*;

    /// A server with few places.
    async fn serve(limits: ConnectionLimits) -> (SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let directory = ManifestDirectory::new("/".into(), "/".into(), Vec::new(), false);
        let source = ConfigSource::Directory(Arc::new(directory));
        let access = AccessControl::new(AccessOptions::default(), None);
        let routes = Routes::new(source, access, 404, ServerMetrics::default(), None);
        let stop = CancellationToken::new();
        let failures = FailureLog::default();
        tokio::spawn(run(listener, None, Arc::new(routes), limits, failures, stop.clone()));
        (address, stop)
    }

    async fn connect(server: SocketAddr, last: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into()).unwrap();
        socket.connect(server).await.unwrap()
    }

    /// The status of a request; `None` if the server closed the connection.
    async fn request(stream: &mut TcpStream) -> Option<String> {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.ok()?;
        let mut buffer = [0; 1024];
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
        text.split(' ').nth(1).map(str::to_owned)
    }

    #[tokio::test]
    async fn idle_connections_of_one_address_do_not_keep_others_out() {
        let limits = ConnectionLimits { total: 8, busy: 5, fair_share: 2, per_address: None };
        let (server, stop) = serve(limits).await;
        let mut greedy = Vec::new();
        for _ in 0..20 {
            let mut stream = connect(server, 1).await;
            if request(&mut stream).await.is_some() {
                greedy.push(stream);
            }
        }
        assert_eq!(greedy.len(), 5);
        // More clients than places, and each is served.
        let mut others = Vec::new();
        for last in 2..12 {
            let mut stream = connect(server, last).await;
            assert_eq!(request(&mut stream).await.as_deref(), Some("200"), "127.0.0.{last}");
            others.push(stream);
        }
        // Those of the greedy address were closed first.
        assert!(request(&mut greedy[0]).await.is_none());
        stop.cancel();
    }
}
