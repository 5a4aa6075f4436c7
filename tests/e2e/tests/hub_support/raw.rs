//! Raw bytes over TLS, for clients that do what no client library would do.

use anyhow::{Context, Result};
use machinist_e2e::cluster::KubeconfigTls;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub type TlsConnection = StreamOwned<ClientConnection, TcpStream>;

/// Connects to one server, as its administrator or without a certificate.
pub struct RawTlsDialer {
    address: SocketAddr,
    admin: Arc<ClientConfig>,
    anonymous: Arc<ClientConfig>,
}

/// The head and the body of a response.
#[derive(Debug)]
pub struct RawHttpResponse {
    pub code: u16,
    pub body: Vec<u8>,
}

impl RawHttpResponse {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

impl RawTlsDialer {
    /// Reads keys and address from a kubeconfig.
    pub fn new(kubeconfig: &Path, address: &str) -> Result<Self> {
        let KubeconfigTls { admin, anonymous } = KubeconfigTls::read(kubeconfig)?;
        let address = address.parse()?;
        Ok(Self { address, admin: Arc::new(admin), anonymous: Arc::new(anonymous) })
    }

    pub fn tcp(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(stream)
    }

    /// A connection as the administrator.
    pub fn admin(&self) -> Result<TlsConnection> {
        self.connect(&self.admin, &[])
    }

    /// An HTTP/2 connection as the administrator.
    pub fn admin_http2(&self) -> Result<TlsConnection> {
        self.connect(&self.admin, &[b"h2"])
    }

    /// An HTTP/2 connection without a certificate.
    pub fn anonymous_http2(&self) -> Result<TlsConnection> {
        self.connect(&self.anonymous, &[b"h2"])
    }

    /// A connection without a certificate.
    pub fn anonymous(&self) -> Result<TlsConnection> {
        self.connect(&self.anonymous, &[])
    }

    fn connect(&self, config: &Arc<ClientConfig>, protocols: &[&[u8]]) -> Result<TlsConnection> {
        let ip: IpAddr = self.address.ip();
        let config = if protocols.is_empty() {
            Arc::clone(config)
        } else {
            let mut config = ClientConfig::clone(config);
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            Arc::new(config)
        };
        let mut tls = ClientConnection::new(config, ServerName::IpAddress(ip.into()))?;
        let mut tcp = self.tcp()?;
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp)?;
        }
        Ok(StreamOwned::new(tls, tcp))
    }

    /// Sends the bytes of one HTTP/1 request as the administrator and reads the whole response.
    pub fn request(&self, request: &[u8]) -> Result<RawHttpResponse> {
        let mut connection = self.admin()?;
        // The server may respond and close before it has read everything.
        let _ = connection.write_all(request).and_then(|()| connection.flush());
        read_response(&mut connection)
    }
}

/// The response on a connection that the server closes after it.
pub fn read_response(connection: &mut TlsConnection) -> Result<RawHttpResponse> {
    let mut bytes = Vec::new();
    let mut piece = [0; 16384];
    loop {
        match connection.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            // The server may close without a TLS close_notify after the response.
            Err(_) if !bytes.is_empty() => break,
            Err(error) => return Err(error.into()),
        }
    }
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").context("no head")?;
    let head = std::str::from_utf8(&bytes[..end])?;
    let code = head.split(' ').nth(1).context("no code")?.parse()?;
    Ok(RawHttpResponse { code, body: bytes[end + 4..].to_vec() })
}

/// An HTTP/1 request that closes the connection.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: hub\r\nconnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !headers.iter().any(|(name, _)| *name == "transfer-encoding" || *name == "content-length") {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    [text.as_bytes(), body].concat()
}

/// The frames of an HTTP/2 client that requests the same path on many streams and reads nothing.
pub fn http2_without_window(path: &str, streams: u32) -> Vec<u8> {
    let mut bytes = HTTP2_PREFACE.to_vec();
    // SETTINGS: the initial window of every stream is 0.
    bytes.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    let head = http2_head(path);
    for stream in 0..streams {
        bytes.extend(frame(1, 0x5, stream * 2 + 1, &head)); // end of stream, end of headers
    }
    bytes
}

/// What every HTTP/2 client sends first.
pub const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The header block of a GET request.
pub fn http2_head(path: &str) -> Vec<u8> {
    let mut head = vec![0x82, 0x87]; // GET, https
    for (index, value) in [(4, path), (1, "hub")] {
        head.push(index); // a literal of a known name, not indexed
        let length = u8::try_from(value.len()).ok().filter(|length| *length < 127);
        head.push(length.unwrap_or(0));
        head.extend_from_slice(value.as_bytes());
    }
    head
}

/// The header block of a GET request with a token.
pub fn http2_head_with_token(path: &str, token: &str) -> Vec<u8> {
    let value = format!("Bearer {token}");
    let length = u8::try_from(value.len()).ok().filter(|length| *length < 127);
    let mut head = http2_head(path);
    head.extend([0x0f, 8, length.unwrap_or(0)]); // `authorization` has the index 15 + 8
    head.extend_from_slice(value.as_bytes());
    head
}

/// One HTTP/2 frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}
