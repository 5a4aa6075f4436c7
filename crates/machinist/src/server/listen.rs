//! Connections: a short accept loop, and limits against those who only hold them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
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

use super::page::Pages;

/// The TLS handshake must be over in this time.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The head of a request must be there in this time, also after the last request of a connection.
const HEAD: Duration = Duration::from_secs(15);
/// A connection must end in this time: whoever reads slower than that holds it for another reason.
const LIFE: Duration = Duration::from_secs(600);
/// How long running answers may go on after the stop.
const DRAIN: Duration = Duration::from_secs(5);
/// As many connections at once on a port.
const CONNECTIONS: usize = 20_000;
/// The head of a request is at most this large.
const HEAD_SIZE: usize = 16 * 1024;

/// Serves a port until it is stopped, then lets running answers end.
pub(super) async fn run(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    pages: Arc<Pages>,
    stop: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
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
        let (acceptor, pages, watcher) = (acceptor.clone(), Arc::clone(&pages), graceful.watcher());
        tokio::spawn(async move {
            connection(stream, address, acceptor, pages, watcher).await;
            drop(slot);
        });
    }
    drop(listener);
    // Whoever still reads after that is cut off.
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    pages: Arc<Pages>,
    watcher: Watcher,
) {
    let _ = stream.set_nodelay(true);
    // Boxed: there may be thousands, and those without TLS need not have room for it.
    match acceptor {
        None => Box::pin(http(stream, address, pages, watcher)).await,
        Some(acceptor) => Box::pin(secure(stream, address, acceptor, pages, watcher)).await,
    }
}

async fn secure(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    pages: Arc<Pages>,
    watcher: Watcher,
) {
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Box::pin(http(stream, address, pages, watcher)).await,
        Ok(Err(error)) => tracing::debug!(%address, %error, "no TLS connection"),
        Err(_) => tracing::debug!(%address, "TLS handshake took too long"),
    }
}

async fn http<S>(stream: S, address: SocketAddr, pages: Arc<Pages>, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let pages = Arc::clone(&pages);
        async move {
            let (head, _) = request.into_parts();
            Ok::<_, Infallible>(pages.answer(&head, address).await)
        }
    });
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_SIZE);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(LIFE, watcher.watch(connection)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%address, %error, "connection ended"),
        Err(_) => tracing::debug!(%address, "connection lived too long"),
    }
}
