//! A small HTTP server with fixed responses, plain or over TLS, that records its requests.

use crate::pki::TestCertificate;
use anyhow::{Context, Result};
use parking_lot::{Mutex, MutexGuard};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A received request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// The path with its query.
    pub path: String,
    /// The headers; names in lower case.
    pub headers: BTreeMap<String, String>,
}

/// A server that runs until its handle is dropped.
#[derive(Debug)]
pub struct HttpServer {
    url: String,
    shared: Arc<HttpServerState>,
}

#[derive(Debug)]
struct HttpServerState {
    responses: Mutex<BTreeMap<String, Vec<u8>>>,
    requests: Mutex<Vec<ReceivedRequest>>,
    stop: AtomicBool,
    tls: Option<Arc<ServerConfig>>,
}

impl HttpServer {
    /// A plain server on a free port of an address.
    pub fn http(address: &str) -> Result<Self> {
        Self::start(address, None)
    }

    /// A server with a certificate, on a free port of an address.
    pub fn https(address: &str, identity: &TestCertificate) -> Result<Self> {
        let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        Self::start(address, Some(Arc::new(config)))
    }

    fn start(address: &str, tls: Option<Arc<ServerConfig>>) -> Result<Self> {
        let listener = TcpListener::bind((address, 0)).with_context(|| format!("on {address}"))?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr()?);
        let (answers, requests) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(HttpServerState {
            responses: answers,
            requests,
            stop: AtomicBool::new(false),
            tls,
        });
        let thread = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if thread.stop.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&thread);
                // A client may close the connection early.
                thread::spawn(move || shared.serve(stream));
            }
        });
        Ok(Self { url, shared })
    }

    /// The base URL, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves these bytes at a path from now on. Other paths return 404.
    pub fn respond(&self, path: &str, body: impl Into<Vec<u8>>) {
        lock(&self.shared.responses).insert(path.to_owned(), body.into());
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        lock(&self.shared.requests).clone()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Wakes the listener, which then sees the flag.
        let address = self.url.split("//").nth(1).unwrap_or_default();
        let _ = TcpStream::connect(address);
    }
}

impl HttpServerState {
    fn serve(&self, stream: TcpStream) -> Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        match &self.tls {
            None => self.handle(stream),
            Some(config) => {
                let connection = ServerConnection::new(Arc::clone(config))?;
                self.handle(StreamOwned::new(connection, stream))
            }
        }
    }

    /// Serves one request and closes the connection.
    fn handle(&self, stream: impl Read + Write) -> Result<()> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut headers = BTreeMap::new();
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        lock(&self.requests).push(ReceivedRequest { path: path.clone(), headers });
        let body = lock(&self.responses).get(&path).cloned();
        let status = if body.is_some() { "200 OK" } else { "404 Not Found" };
        let body = body.unwrap_or_default();
        let stream = stream.get_mut();
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len())?;
        write!(stream, "connection: close\r\n\r\n")?;
        stream.write_all(&body)?;
        stream.flush()?;
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
