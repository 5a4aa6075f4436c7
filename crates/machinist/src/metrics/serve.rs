//! The port of a metrics endpoint: HTTP or HTTPS, with limits against clients that only hold connections open.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::handler::MetricsHandler;
use crate::listen;
use crate::listen::connections::{ConnectionGuard, ConnectionLimits, Connections};

/// A few Prometheus servers and the kubelet connect. When all places are taken, the longest idle connection is closed.
const CONNECTION_LIMITS: ConnectionLimits =
    ConnectionLimits { total: 256, busy: 64, fair_share: 16, per_address: None };
/// The timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for the head of a request, also for idle connections. Longer than most scrape intervals.
const HEADER_TIMEOUT: Duration = Duration::from_secs(70);
/// The maximum size of the head of a request: a token, and what clients send with it.
const MAX_HEADER_SIZE: usize = 16 * 1024;
/// The maximum age of a connection, also of one that reads its response slowly.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(600);

/// Serves until it is dropped.
pub(super) async fn run(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    handler: Arc<MetricsHandler>,
) {
    let connections = Connections::new(CONNECTION_LIMITS);
    // Connections end with the endpoint.
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        let (stream, address) =
            listen::accept(&listener, &handler.endpoint.readiness.failures).await;
        let Some(guard) = connections.admit(address.ip()) else {
            tracing::debug!(%address, "too many connections for metrics");
            continue;
        };
        let (acceptor, handler, guard) = (acceptor.clone(), Arc::clone(&handler), Arc::new(guard));
        open.spawn(async move {
            let serve = serve_connection(stream, address, acceptor, handler, &guard);
            tokio::select! {
                ended = tokio::time::timeout(MAX_CONNECTION_AGE, serve) => {
                    if ended.is_err() {
                        tracing::debug!(%address, "connection exceeded the maximum age");
                    }
                }
                () = guard.evicted() => {
                    tracing::debug!(%address, "idle connection closed for another one");
                }
            }
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    handler: Arc<MetricsHandler>,
    guard: &Arc<ConnectionGuard>,
) {
    let Some(acceptor) = acceptor else {
        return serve_http(stream, address, handler, guard).await;
    };
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Box::pin(serve_http(stream, address, handler, guard)).await,
        Ok(Err(error)) => tracing::debug!(%address, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(%address, "TLS handshake timed out"),
    }
}

async fn serve_http<S>(
    stream: S,
    address: SocketAddr,
    handler: Arc<MetricsHandler>,
    guard: &Arc<ConnectionGuard>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let guard = Arc::clone(guard);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (handler, working) = (Arc::clone(&handler), guard.begin_request());
        async move {
            // The body is not read: no page needs one.
            let (head, _) = request.into_parts();
            let response = handler.handle(&head, address.ip()).await;
            drop(working);
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_SIZE);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%address, %error, "connection ended");
    }
}
