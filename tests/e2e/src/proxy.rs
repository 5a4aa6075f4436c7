//! A TCP proxy that can be slow, stall, and cut connections.

use crate::runtime;
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Forwards TCP connections to a server until its handle is dropped.
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    server: String,
    wire: Arc<ProxyState>,
    /// Nothing while connections are refused.
    task: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct ProxyState {
    /// The one-way delay of every byte, in milliseconds.
    delay: AtomicU64,
    /// How many more bytes the server may send to its clients.
    byte_budget: watch::Sender<u64>,
    /// How many it has sent.
    sent: AtomicU64,
    /// Changes with each cut.
    disconnects: watch::Sender<u64>,
}

impl TcpProxy {
    /// Listens on a free port of an address and forwards everything to the server.
    pub fn start(address: &str, server: &str) -> Result<Self> {
        let server = server.to_owned();
        let wire = Arc::new(ProxyState {
            delay: AtomicU64::new(0),
            byte_budget: watch::Sender::new(u64::MAX),
            sent: AtomicU64::new(0),
            disconnects: watch::Sender::new(0),
        });
        let listener = crate::block_on(TcpListener::bind((address, 0)));
        let listener = listener.with_context(|| format!("listen on {address}"))?;
        let address = listener.local_addr()?;
        let task = accept(listener, server.clone(), Arc::clone(&wire));
        Ok(Self { address, server, wire, task: Some(task) })
    }

    /// Refuses connections, and cuts those that are open.
    pub fn refuse(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // The listener is closed when the task has ended.
            let _ = crate::block_on(task);
        }
        self.disconnect_all();
    }

    /// Accepts connections again.
    pub fn accept_again(&mut self) -> Result<()> {
        if self.task.is_none() {
            let listener = crate::block_on(TcpListener::bind(self.address));
            let listener = listener.with_context(|| format!("listen on {} again", self.address))?;
            self.task = Some(accept(listener, self.server.clone(), Arc::clone(&self.wire)));
        }
        Ok(())
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays every byte by this much in each direction.
    pub fn set_delay(&self, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.wire.delay.store(delay, Ordering::Relaxed);
    }

    /// Lets the server send this many more bytes to its clients, over all connections, and then stalls.
    pub fn stall_after(&self, bytes: u64) {
        self.wire.byte_budget.send_replace(bytes);
    }

    /// How many bytes the server has sent to its clients.
    pub fn bytes_sent(&self) -> u64 {
        self.wire.sent.load(Ordering::Relaxed)
    }

    /// Ends the stall.
    pub fn resume(&self) {
        self.wire.byte_budget.send_replace(u64::MAX);
    }

    /// Whether the server can send nothing more to its clients.
    pub fn is_stalled(&self) -> bool {
        *self.wire.byte_budget.borrow() == 0
    }

    /// Cuts all connections. New ones work.
    pub fn disconnect_all(&self) {
        self.wire.disconnects.send_modify(|count| *count += 1);
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.refuse();
    }
}

fn accept(listener: TcpListener, server: String, wire: Arc<ProxyState>) -> JoinHandle<()> {
    runtime().spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(forward(client, server.clone(), Arc::clone(&wire)));
        }
    })
}

impl ProxyState {
    /// Waits until the server may send bytes. Returns how many.
    async fn take_budget(&self, wanted: usize) -> usize {
        let mut left = self.byte_budget.subscribe();
        let wanted = wanted as u64;
        loop {
            // The sender is our own.
            let _ = left.wait_for(|left| *left > 0).await;
            let mut granted = 0;
            self.byte_budget.send_modify(|left| {
                granted = wanted.min(*left);
                if *left != u64::MAX {
                    *left -= granted;
                }
            });
            if granted > 0 {
                return usize::try_from(granted).unwrap_or(usize::MAX);
            }
        }
    }
}

async fn forward(client: TcpStream, server: String, wire: Arc<ProxyState>) {
    let mut cut = wire.disconnects.subscribe();
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((client_in, client_out), (server_in, server_out)) =
        (client.into_split(), server.into_split());
    tokio::select! {
        () = forward_one_way(client_in, server_out, Arc::clone(&wire), false) => {}
        () = forward_one_way(server_in, client_out, wire, true) => {}
        _ = cut.changed() => {}
    }
}

/// Forwards bytes in one direction. They wait in a queue, so that a delay does not limit the bandwidth.
async fn forward_one_way(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    wire: Arc<ProxyState>,
    counted: bool,
) {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(1024);
    let gate = Arc::clone(&wire);
    let reading = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let delay = Duration::from_millis(wire.delay.load(Ordering::Relaxed));
            if sender.send((Instant::now() + delay, buffer[..count].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((at, bytes)) = receiver.recv().await {
            sleep_until(at).await;
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let count = if counted { gate.take_budget(rest.len()).await } else { rest.len() };
                if to.write_all(&rest[..count]).await.is_err() {
                    return;
                }
                if counted {
                    gate.sent.fetch_add(count as u64, Ordering::Relaxed);
                }
                rest = &rest[count..];
            }
        }
        // The other side may still send.
        let _ = to.shutdown().await;
    };
    tokio::join!(reading, writing);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_stalled_proxy_resumes() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = server.local_addr().unwrap().to_string();
        let speaks = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            stream.write_all(b"abcdef").unwrap();
        });
        let proxy = TcpProxy::start("127.0.0.1", &target).unwrap();
        proxy.stall_after(4);
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        let mut four = [0; 4];
        client.read_exact(&mut four).unwrap();
        assert_eq!((&four, proxy.is_stalled()), (b"abcd", true));
        proxy.resume();
        let mut rest = String::new();
        client.read_to_string(&mut rest).unwrap();
        assert_eq!((rest.as_str(), proxy.bytes_sent()), ("ef", 6));
        speaks.join().unwrap();
    }

    #[test]
    fn bytes_are_delayed_and_a_cut_closes_the_connection() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = server.local_addr().unwrap().to_string();
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut byte = [0];
            while let Ok(1) = stream.read(&mut byte) {
                stream.write_all(&byte).unwrap();
            }
        });
        let mut proxy = TcpProxy::start("127.0.0.1", &target).unwrap();
        proxy.set_delay(Duration::from_millis(30));
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        let start = std::time::Instant::now();
        client.write_all(b"x").unwrap();
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(60));
        proxy.disconnect_all();
        assert_eq!(client.read(&mut byte).unwrap_or(0), 0);
        echo.join().unwrap();
        proxy.refuse();
        assert!(TcpStream::connect(proxy.address()).is_err());
        proxy.accept_again().unwrap();
        assert!(TcpStream::connect(proxy.address()).is_ok());
    }
}
