//! Listening sockets: bound by this process, or inherited from systemd (socket activation).

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use listenfd::ListenFd;
use machinist_core::serve::socket_activation::{assign_sockets, socket_names};
use tokio::net::TcpListener;

use crate::listen;

/// The sockets that systemd passed, by purpose.
#[derive(Debug, Clone, Default)]
pub struct InheritedSockets {
    /// HTTP with TLS.
    pub secure: Option<ListenAddress>,
    /// HTTP without TLS.
    pub insecure: Option<ListenAddress>,
    /// Metrics.
    pub metrics: Option<ListenAddress>,
}

/// Where to listen.
#[derive(Debug, Clone)]
pub enum ListenAddress {
    /// Bind this address; port 0 selects any free port.
    Address(SocketAddr),
    /// Use this open socket.
    Socket(Arc<std::net::TcpListener>),
}

/// The sockets that systemd passed to this process; none without socket activation.
///
/// # Errors
/// A socket is not a listening TCP socket, or the names do not show its purpose.
pub fn inherited_sockets() -> Result<Option<InheritedSockets>> {
    let mut passed = ListenFd::from_env();
    if passed.len() == 0 {
        return Ok(None);
    }
    let text = std::env::var("LISTEN_FDNAMES").ok();
    let sockets =
        assign_sockets(&socket_names(passed.len(), text.as_deref())).map_err(anyhow::Error::msg)?;
    let mut take = |at: Option<usize>| -> Result<Option<ListenAddress>> {
        let Some(at) = at else { return Ok(None) };
        let socket = passed.take_tcp_listener(at);
        let socket =
            socket.context("systemd passed a socket that is not a listening TCP socket")?;
        Ok(socket.map(|socket| ListenAddress::Socket(Arc::new(socket))))
    };
    Ok(Some(InheritedSockets {
        secure: take(sockets.secure)?,
        insecure: take(sockets.insecure)?,
        metrics: take(sockets.metrics)?,
    }))
}

/// Starts to listen.
pub(super) async fn listen(address: &ListenAddress, flag: &str) -> Result<TcpListener> {
    let listener = match address {
        ListenAddress::Address(address) => listen::bind(*address, flag).await?,
        ListenAddress::Socket(socket) => {
            let socket = socket.try_clone().context("cannot use the socket that systemd passed")?;
            socket.set_nonblocking(true)?;
            TcpListener::from_std(socket)?
        }
    };
    let address = listener.local_addr()?;
    let socket = flag.trim_start_matches("--");
    tracing::info!(%address, socket, "listening");
    Ok(listener)
}
