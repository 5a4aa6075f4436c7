//! Limits of a connection: time, memory and number.

use std::os::fd::AsFd;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustix::net::sockopt;

/// Concurrent requests on one HTTP/2 connection.
const MAX_CONCURRENT_STREAMS: u32 = 250;
/// Largest request head.
const MAX_HEADER_BYTES: u32 = 64 << 10;
/// Send buffer of a stream; on HTTP/1, of the connection together with the next request head. A
/// client that does not read holds no more than this.
const MAX_SEND_BUFFER_BYTES: usize = 64 << 10;
/// Receive window of a stream and of a connection.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Interval of HTTP/2 pings to a silent client, and the timeout of the response.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The limits of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Timeout of the TLS handshake.
    pub handshake_timeout: Duration,
    /// Timeout of the first request after the handshake.
    pub first_request_timeout: Duration,
    /// Timeout of the next request head on HTTP/1. Longer than clients keep idle connections, so
    /// that the clients close them.
    pub header_read_timeout: Duration,
    /// A client that accepts no data for this long is disconnected.
    pub write_stall_timeout: Duration,
    /// Maximum number of connections. Further ones wait in the accept queue.
    pub max_connections: usize,
    /// How many of them may be anonymous. One more evicts the oldest.
    pub max_anonymous_connections: usize,
    /// How many one machine may have. A daemon has one or two.
    pub max_machine_connections: usize,
    /// How many the users of one bootstrap or viewer token may have together.
    pub max_token_connections: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(10),
            first_request_timeout: Duration::from_secs(30),
            header_read_timeout: Duration::from_secs(120),
            write_stall_timeout: Duration::from_secs(60),
            max_connections: 20_000,
            max_anonymous_connections: 12_000,
            max_machine_connections: 100,
            max_token_connections: 1000,
        }
    }
}

impl ConnectionLimits {
    /// Sets TCP options: no delay, a timeout for stalled writes, and keepalive. A socket without an
    /// option works without it.
    pub(super) fn configure_socket(&self, socket: impl AsFd) {
        let socket = socket.as_fd();
        let stalled = u32::try_from(self.write_stall_timeout.as_millis()).unwrap_or(u32::MAX);
        let _ = sockopt::set_tcp_nodelay(socket, true);
        let _ = sockopt::set_tcp_user_timeout(socket, stalled);
        let _ = sockopt::set_socket_keepalive(socket, true);
        let _ = sockopt::set_tcp_keepidle(socket, KEEP_ALIVE_INTERVAL);
        let _ = sockopt::set_tcp_keepintvl(socket, KEEP_ALIVE_TIMEOUT / 4);
        let _ = sockopt::set_tcp_keepcnt(socket, 4);
    }

    /// Configures HTTP/1 and HTTP/2; TLS negotiates which one is used.
    pub(super) fn connection_builder(&self, http2: bool) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        if http2 {
            builder
                .http2()
                .timer(TokioTimer::new())
                .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
                .max_header_list_size(MAX_HEADER_BYTES)
                .max_send_buf_size(MAX_SEND_BUFFER_BYTES)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .keep_alive_interval(KEEP_ALIVE_INTERVAL)
                .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
            return builder.http2_only();
        }
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_read_timeout)
            .max_buf_size(MAX_SEND_BUFFER_BYTES)
            .keep_alive(true);
        builder.http1_only()
    }
}
