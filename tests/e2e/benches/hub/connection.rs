//! One client connection: HTTP/2 over TLS with any number of concurrent requests, as Kubernetes' own clients do it.

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use machinist_e2e::cluster::KubeconfigTls;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Connects to one API server.
#[derive(Clone)]
pub(crate) struct BenchConnector {
    address: SocketAddr,
    connector: TlsConnector,
}

/// A connection. Clones share it.
#[derive(Clone)]
pub(crate) struct BenchConnection {
    sender: SendRequest<Full<Bytes>>,
}

impl BenchConnector {
    pub(crate) fn new(kubeconfig: &Path, address: &str) -> Result<Self> {
        let mut config = KubeconfigTls::read(kubeconfig)?.admin;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { address: address.parse()?, connector: TlsConnector::from(Arc::new(config)) })
    }

    pub(crate) async fn connect(&self) -> Result<BenchConnection> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let tls = self.connector.connect(name, tcp).await?;
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(tls)).await?;
        tokio::spawn(connection); // it ends when the last sender is dropped
        Ok(BenchConnection { sender })
    }
}

impl BenchConnection {
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://home{path}"))
            .header(header::CONTENT_TYPE, content_type)
            .header(header::ACCEPT, "application/json")
            .body(Full::new(body))?;
        let mut sender = self.sender.clone();
        sender.ready().await?;
        Ok(sender.send_request(request).await?)
    }

    /// Sends a request and reads the whole response. Fails unless the status is a success.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<Bytes> {
        let response = self.send(method, path, content_type, body.into()).await?;
        let code = response.status();
        let bytes = response.into_body().collect().await?.to_bytes();
        ensure!(
            code.is_success(),
            "{method} {path}: {code}: {}",
            String::from_utf8_lossy(&bytes).chars().take(300).collect::<String>()
        );
        Ok(bytes)
    }
}
