//! The client of the machine config server: one connection per request, and only the CA that the config names.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The timeout of a whole request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The port of URLs without one.
const DEFAULT_PORT: u16 = 443;
/// The maximum size of a response.
const MAX_RESPONSE_SIZE: usize = 64 << 20;

/// A client for one server.
pub(super) struct ServerClient {
    host: String,
    port: u16,
    roots: Arc<RootCertStore>,
}

impl fmt::Debug for ServerClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerClient").field("host", &self.host).finish_non_exhaustive()
    }
}

/// A response of the server.
#[derive(Debug)]
pub(super) struct ServerResponse {
    pub status: u16,
    pub retry_after: Option<u64>,
    pub body: Vec<u8>,
}

impl ServerClient {
    /// A client for the server at a URL, with the certificates of its CA.
    pub(super) fn new(url: &str, authority: &[u8]) -> Result<Self> {
        let uri: http::Uri = url.parse().with_context(|| format!("{url:?} is not a URL"))?;
        let host = uri.host().with_context(|| format!("{url:?} has no host"))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority) {
            roots.add(certificate.context("the CA is not PEM")?).context("the CA is invalid")?;
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port: uri.port_u16().unwrap_or(DEFAULT_PORT), roots: Arc::new(roots) })
    }

    /// Sends a certificate signing request.
    pub(super) async fn post(
        &self,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> Result<ServerResponse> {
        let mut request = Request::builder().method(Method::POST).uri(path);
        if let Some(token) = token.filter(|token| !token.is_empty()) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        self.send(request, body.to_owned(), None).await
    }

    /// Fetches a path with a client certificate.
    pub(super) async fn get(
        &self,
        path: &str,
        certificate: &str,
        key: &str,
    ) -> Result<ServerResponse> {
        let request = Request::builder().method(Method::GET).uri(path);
        self.send(request, String::new(), Some((certificate, key))).await
    }

    async fn send(
        &self,
        request: http::request::Builder,
        body: String,
        identity: Option<(&str, &str)>,
    ) -> Result<ServerResponse> {
        let host = match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        };
        let request = request.header(header::HOST, host).header(header::CONNECTION, "close");
        let request = request.body(Full::new(Bytes::from(body)))?;
        let config = self.tls_config(identity)?;
        let exchange = self.send_over_tls(request, config);
        tokio::time::timeout(REQUEST_TIMEOUT, exchange).await.context("the request timed out")?
    }

    fn tls_config(&self, identity: Option<(&str, &str)>) -> Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&self.roots));
        Ok(match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain: Result<Vec<_>, _> =
                    CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).ok();
                let key = key.context("the machine's key is not PEM")?;
                builder.with_client_auth_cert(chain.context("the certificate is not PEM")?, key)?
            }
        })
    }

    async fn send_over_tls(
        &self,
        request: Request<Full<Bytes>>,
        config: ClientConfig,
    ) -> Result<ServerResponse> {
        let (host, port) = (self.host.as_str(), self.port);
        let stream = TcpStream::connect((host, port)).await;
        let stream = stream.with_context(|| format!("cannot reach {host}:{port}"))?;
        let name =
            ServerName::try_from(host.to_owned()).context("the host is not a valid server name")?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let stream = TokioIo::new(stream.context("the TLS handshake failed")?);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
        let exchange = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = Limited::new(body, MAX_RESPONSE_SIZE).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes().to_vec();
            let after = head.headers.get(header::RETRY_AFTER).and_then(|it| it.to_str().ok());
            let retry_after = after.and_then(|text| text.parse().ok());
            anyhow::Ok(ServerResponse { status: head.status.as_u16(), retry_after, body })
        };
        tokio::pin!(exchange);
        tokio::select! {
            response = &mut exchange => response,
            ended = connection => {
                ended.context("the connection was lost")?;
                exchange.await
            }
        }
    }
}
