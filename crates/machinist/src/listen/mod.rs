//! Binds ports on every address, whether the machine has IPv4, IPv6 or both, and limits their connections.

pub(crate) mod connections;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use machinist_hub::failure_log::FailureLog;
use rustix::net::sockopt::set_ipv6_v6only;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The backlog of the standard library.
const BACKLOG: u32 = 1024;
/// Pause after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Binds an address. `[::]` means every address of the machine, IPv6 and IPv4, whatever the kernel's default for dual-stack
/// sockets; without IPv6 it means every IPv4 address.
pub(crate) async fn bind(address: SocketAddr, option: &str) -> Result<TcpListener> {
    let listener = if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        match bind_any(address) {
            Err(error) if has_no_ipv6(&error) => {
                let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port());
                TcpListener::bind(any).await
            }
            listener => listener,
        }
    } else {
        TcpListener::bind(address).await
    };
    listener.with_context(|| format!("cannot listen on {address}; see {option}"))
}

fn bind_any(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    set_ipv6_v6only(&socket, false)?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The next connection. A failed accept, for example without a free file descriptor, is repeated after a pause.
pub(crate) async fn accept(
    listener: &TcpListener,
    failures: &FailureLog,
) -> (TcpStream, SocketAddr) {
    const TASK: &str = "accept a connection";
    let port = || {
        let port = listener.local_addr().map_or(0, |address| address.port());
        format!("port {port}")
    };
    let mut has_failed = false;
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                if has_failed {
                    failures.succeeded(TASK, &port());
                }
                return accepted;
            }
            Err(error) => {
                has_failed = true;
                failures.failed(TASK, &port(), &error.to_string());
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Whether IPv6 is missing in the kernel or on all interfaces.
fn has_no_ipv6(error: &io::Error) -> bool {
    let codes = [rustix::io::Errno::AFNOSUPPORT, rustix::io::Errno::ADDRNOTAVAIL];
    codes.iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn reaches(address: &str, port: u16) -> bool {
        TcpStream::connect((address, port)).await.is_ok()
    }

    #[tokio::test]
    async fn the_unspecified_address_is_dual_stack() {
        let listener = bind("[::]:0".parse().unwrap(), "--x").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(reaches("127.0.0.1", port).await);
        // Whether this machine has IPv6 at all.
        if TcpListener::bind("[::1]:0").await.is_ok() {
            assert!(reaches("::1", port).await);
        }
    }

    #[tokio::test]
    async fn a_single_address_is_bound_alone() {
        let listener = bind("127.0.0.1:0".parse().unwrap(), "--x").await.unwrap();
        let taken = listener.local_addr().unwrap();
        assert!(!reaches("::1", taken.port()).await);
        let error = bind(taken, "--x").await.unwrap_err();
        assert_eq!(error.to_string(), format!("cannot listen on {taken}; see --x"));
    }

    #[test]
    fn only_a_machine_without_ipv6_falls_back_to_ipv4() {
        for (code, expected) in [
            (rustix::io::Errno::AFNOSUPPORT, true),
            (rustix::io::Errno::ADDRNOTAVAIL, true),
            (rustix::io::Errno::ADDRINUSE, false),
            (rustix::io::Errno::ACCESS, false),
        ] {
            let error = io::Error::from_raw_os_error(code.raw_os_error());
            assert_eq!(has_no_ipv6(&error), expected, "{error}");
        }
    }
}
