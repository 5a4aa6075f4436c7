//! Load clients that speak a minimum of HTTP, so that the servers have the host to themselves.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A machine that waits longer than this gives up.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The request and its destination.
#[derive(Clone)]
pub(crate) struct LoadTarget {
    address: String,
    port: u16,
    request: Arc<str>,
    tls: Option<TlsConnector>,
}

trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

impl LoadTarget {
    pub(crate) fn new(
        address: &str,
        port: u16,
        path: &str,
        authority: Option<&str>,
    ) -> Result<Self> {
        let accept = "application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1";
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n").into();
        let connector = |authority: &str| -> Result<TlsConnector> {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots)
                .with_no_client_auth();
            Ok(TlsConnector::from(Arc::new(config)))
        };
        let tls = authority.map(connector).transpose()?;
        Ok(Self { address: address.to_owned(), port, request, tls })
    }

    async fn connect(&self) -> Result<Box<dyn ByteStream>> {
        let stream = TcpStream::connect((self.address.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Box::new(stream),
            Some(connector) => {
                let name = ServerName::try_from(self.address.clone())?;
                Box::new(connector.connect(name, stream).await?)
            }
        })
    }

    /// Sends one request on a connection. Returns the size of the response.
    async fn request(&self, stream: &mut dyn ByteStream, buffer: &mut [u8]) -> Result<usize> {
        stream.write_all(self.request.as_bytes()).await?;
        stream.flush().await?;
        let (mut filled, end) = (0, b"\r\n\r\n");
        let head = loop {
            let count = stream.read(&mut buffer[filled..]).await?;
            ensure!(count > 0, "the server has closed the connection");
            filled += count;
            if let Some(at) = buffer[..filled].windows(4).position(|four| four == end) {
                break at + 4;
            }
        };
        let text = str::from_utf8(&buffer[..head])?.to_ascii_lowercase();
        ensure!(text.starts_with("http/1.1 200"), "{text}");
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.context("no length")?.parse()?;
        let mut left = length - (filled - head);
        while left > 0 {
            let most = left.min(buffer.len());
            let count = stream.read(&mut buffer[..most]).await?;
            ensure!(count > 0, "the answer ends too early");
            left -= count;
        }
        Ok(length)
    }
}

/// The bytes of one response.
pub(crate) async fn fetch(target: &LoadTarget) -> Result<Vec<u8>> {
    let mut stream = target.connect().await?;
    let request = target.request.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1);
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").context("no head")?;
    Ok(bytes.split_off(head + 4))
}

/// Responses per second over this many connections.
pub(crate) async fn measure_rate(
    target: &LoadTarget,
    connections: usize,
    time: Duration,
) -> Result<f64> {
    let (count, start) = (AtomicUsize::new(0), Instant::now());
    let clients = (0..connections).map(|_| async {
        let mut stream = target.connect().await?;
        let mut buffer = vec![0; 256 * 1024];
        while start.elapsed() < time {
            target.request(&mut *stream, &mut buffer).await?;
            count.fetch_add(1, Ordering::Relaxed);
        }
        anyhow::Ok(())
    });
    try_join_all(clients).await?;
    Ok(count.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64())
}

/// Machines that connect at the same moment. Returns how long each successful one waited.
pub(crate) async fn measure_burst(
    target: &LoadTarget,
    machines: usize,
    size: usize,
) -> Result<Vec<Duration>> {
    let start = Instant::now();
    let clients: Vec<_> = (0..machines)
        .map(|_| {
            let target = target.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 16 * 1024];
                let mut stream = target.connect().await?;
                let found = target.request(&mut *stream, &mut buffer).await?;
                ensure!(found == size, "{found} bytes");
                anyhow::Ok(start.elapsed())
            })
        })
        .collect();
    let mut times = Vec::new();
    let mut first_error = None;
    for client in clients {
        let ended = async { client.await? };
        match tokio::time::timeout(REQUEST_TIMEOUT, ended).await.context("it takes too long") {
            Ok(Ok(time)) => times.push(time),
            Ok(Err(error)) | Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    match first_error {
        Some(error) if times.is_empty() => Err(error),
        Some(error) => {
            println!("not all were served: {error:#}");
            Ok(times)
        }
        None => Ok(times),
    }
}
