//! Where a port comes from: an address of our own, or a socket that systemd has opened for us.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use listenfd::ListenFd;
use machinist_core::serve::socket_activation::{assign_sockets, socket_names};
use tokio::net::TcpListener;

use crate::listen;

/// The sockets that systemd has opened, by what they are for.
#[derive(Debug, Clone, Default)]
pub struct InheritedSockets {
    /// With TLS.
    pub secure: Option<ListenAddress>,
    /// Without.
    pub insecure: Option<ListenAddress>,
    /// Figures.
    pub metrics: Option<ListenAddress>,
}

/// Where to listen.
#[derive(Debug, Clone)]
pub enum ListenAddress {
    /// At an address; port 0 is any free one.
    Address(SocketAddr),
    /// At a socket that is open already.
    Socket(Arc<std::net::TcpListener>),
}

/// The sockets of this process's unit; none if it was not started by a socket.
///
/// # Errors
/// One of them is no TCP socket that listens, or it is not clear what they are for.
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
        let socket = socket.context("a socket that systemd has opened is not one of TCP")?;
        Ok(socket.map(|socket| ListenAddress::Socket(Arc::new(socket))))
    };
    Ok(Some(InheritedSockets {
        secure: take(sockets.secure)?,
        insecure: take(sockets.insecure)?,
        metrics: take(sockets.metrics)?,
    }))
}

/// Listens.
pub(super) async fn listen(place: &ListenAddress, flag: &str) -> Result<TcpListener> {
    let listener = match place {
        ListenAddress::Address(address) => listen::bind(*address, flag).await?,
        ListenAddress::Socket(socket) => {
            let socket = socket.try_clone().context("cannot use the socket of systemd")?;
            socket.set_nonblocking(true)?;
            TcpListener::from_std(socket)?
        }
    };
    let address = listener.local_addr()?;
    tracing::info!(%address, "listening ({})", flag.trim_start_matches("--"));
    Ok(listener)
}
