//! One client connection: HTTP/2 over TLS with any number of concurrent requests, as Kubernetes' own clients do it.

use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
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
        let text = std::fs::read_to_string(kubeconfig)?;
        let ca = kubeconfig_data(&text, "certificate-authority-data")?;
        let certificate = kubeconfig_data(&text, "client-certificate-data")?;
        let key = kubeconfig_data(&text, "client-key-data")?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&ca)?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(&certificate)?],
                PrivateKeyDer::from_pem_slice(&key)?,
            )?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { address: address.parse()?, connector: TlsConnector::from(Arc::new(config)) })
    }

    pub(crate) async fn connect(&self) -> Result<BenchConnection> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let tls = self.connector.connect(name, tcp).await?;
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(tls)).await?;
        tokio::spawn(connection); // it ends with the last link, and with it every request
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

/// A field of a kubeconfig, written as YAML or as JSON.
fn kubeconfig_data(kubeconfig: &str, field: &str) -> Result<Vec<u8>> {
    let (_, rest) = kubeconfig.split_once(field).with_context(|| format!("no {field}"))?;
    let value = rest.trim_start_matches(['"', ':', ' ']);
    let end = value.find(['"', '\n', ',']).unwrap_or(value.len());
    Ok(BASE64_STANDARD.decode(value[..end].trim())?)
}
