//! What a connection may take: time, memory and places.

use std::os::fd::AsFd;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustix::net::sockopt;

/// As many requests at once on one connection.
const MAX_CONCURRENT_STREAMS: u32 = 250;
/// The head of a request may be this large.
const MAX_HEADER_BYTES: u32 = 64 << 10;
/// What waits to be sent on one stream, and on one HTTP/1 connection together with the head of the
/// next request: who does not read holds no more than this.
const MAX_SEND_BUFFER_BYTES: usize = 64 << 10;
/// What may have come on one stream and on one connection before somebody reads it.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// How often a silent client is asked whether it is still there, and how long it may take to say so.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The limits of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// A connection must have finished its TLS handshake in this time.
    pub handshake_timeout: Duration,
    /// And must have made its first request in this time after that.
    pub first_request_timeout: Duration,
    /// On HTTP/1 the head of the next request must be there in this time after the last answer.
    /// Longer than clients keep idle connections, so that it is they who close them.
    pub header_read_timeout: Duration,
    /// A client that takes nothing of what is sent to it for this long is gone.
    pub write_stall_timeout: Duration,
    /// As many connections at once; more wait to be accepted.
    pub max_connections: usize,
    /// As many of them may be of clients that nobody knows; the oldest makes room for one more.
    pub max_anonymous_connections: usize,
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
        }
    }
}

impl ConnectionLimits {
    /// Tells the kernel: no waiting for more to send, and an end for peers that vanished or take
    /// nothing. A socket that does not know an option works without it.
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

    /// How a connection is served: by HTTP/2 or HTTP/1, whatever TLS agreed on.
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
