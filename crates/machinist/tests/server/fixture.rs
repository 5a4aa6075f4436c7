//! A directory of manifests, a server for it, and a client with full control over the bytes on the wire.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use machinist_hub::auth::certificates::CertificateAuthority;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

pub(crate) const MASTER: &str = "/config/master";
pub(crate) const IGNITION: &str = "application/vnd.coreos.ignition+json";

/// A directory of manifests, with a certificate.
pub(crate) struct ServerFixture {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) ca: CertificateAuthority,
}

impl ServerFixture {
    pub(crate) fn new() -> Self {
        let ca = CertificateAuthority::from_pem(&CertificateAuthority::generate("test").unwrap())
            .unwrap();
        let site = Self { dir: tempfile::tempdir().unwrap(), ca };
        site.issue("one");
        site.write("kubeconfig", "clusters:\n- name: a\n  cluster: {server: 'https://api:6443'}\n");
        site.object(
            "controller-config/machine-config-controller",
            "ControllerConfig",
            &json!({
                "spec": {"kubeAPIServerServingCAData": "Y2E="},
            }),
        );
        site.config("rendered-master-1", "/etc/one");
        site.pool("master", "rendered-master-1");
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Replaced atomically, as careful tools do.
        let part = path.with_extension("part");
        fs::write(&part, text).unwrap();
        fs::rename(part, path).unwrap();
    }

    pub(crate) fn object(&self, name: &str, kind: &str, rest: &Value) {
        let mut object = rest.clone();
        object["apiVersion"] = "machineconfiguration.openshift.io/v1".into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = Path::new(name).file_name().unwrap().to_str().into();
        self.write(&format!("base/{name}.yaml"), &object.to_string());
    }

    pub(crate) fn config(&self, name: &str, file: &str) {
        let files = json!([{"path": file, "contents": {"source": "data:,x"}}]);
        self.config_with(name, &json!({"storage": {"files": files}}));
    }

    pub(crate) fn config_with(&self, name: &str, rest: &Value) {
        let mut config = rest.clone();
        config["ignition"]["version"] = "3.5.0".into();
        let name = format!("machine-configs/{name}");
        self.object(&name, "MachineConfig", &json!({"spec": {"config": config}}));
    }

    pub(crate) fn pool(&self, name: &str, config: &str) {
        let status = json!({"configuration": {"name": config}});
        self.object(
            &format!("machine-pools/{name}"),
            "MachineConfigPool",
            &json!({"spec": {}, "status": status}),
        );
    }

    /// Creates a new certificate with this name.
    pub(crate) fn issue(&self, name: &str) {
        let names = ["127.0.0.1".to_owned(), format!("{name}.test")];
        let pair = self.ca.issue_server(name, &names).unwrap();
        self.write("tls.key", &pair.key);
        self.write("tls.crt", &pair.certificate);
    }

    /// Runs machinist; returns its output.
    pub(crate) fn machinist(&self, arguments: &[&str]) -> String {
        let output =
            Command::new(env!("CARGO_BIN_EXE_machinist")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn serve(&self, more: &[&str]) -> ConfigServerProcess {
        ConfigServerProcess::start(self, more)
    }
}

/// The log of a server, shared between threads.
pub(crate) type ServerLog = Mutex<mpsc::Receiver<String>>;

/// A running server; killed when it is dropped.
pub(crate) struct ConfigServerProcess {
    pub(crate) child: Child,
    pub(crate) secure: SocketAddr,
    pub(crate) plain: SocketAddr,
    pub(crate) log: ServerLog,
}

impl ConfigServerProcess {
    pub(crate) fn start(site: &ServerFixture, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_machinist"))
            .args(["server", "bootstrap", "--secure-port=0", "--insecure-port=0"])
            .args(["--listen-address=127.0.0.1", "--server-basedir"])
            .arg(site.path("base"))
            .arg("--bootstrap-kubeconfig")
            .arg(site.path("kubeconfig"))
            .arg("--cert")
            .arg(site.path("tls.crt"))
            .arg("--key")
            .arg(site.path("tls.key"))
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, log) = mpsc::channel();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let address = |port: &str| loop {
            let line =
                log.recv_timeout(Duration::from_secs(20)).expect("the server does not listen");
            if line.contains(port) {
                let (_, rest) = line.split_once("address=").unwrap();
                break rest.split(' ').next().unwrap().parse().unwrap();
            }
        };
        let (secure, plain) =
            (address("socket=\"secure-port\""), address("socket=\"insecure-port\""));
        Self { child, secure, plain, log: Mutex::new(log) }
    }

    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> WireResponse {
        exchange(&mut TcpStream::connect(self.plain).unwrap(), method, path, headers)
    }

    pub(crate) fn get(&self, path: &str, accept: &str) -> WireResponse {
        self.request("GET", path, &[("Accept", accept)])
    }

    pub(crate) fn wait_for(&self, part: &str) -> String {
        wait_for(&self.log, part)
    }
}

/// Waits for a line of a log.
pub(crate) fn wait_for(log: &ServerLog, part: &str) -> String {
    let log = log.lock().unwrap();
    loop {
        let line = log.recv_timeout(Duration::from_secs(20)).expect(part);
        if line.contains(part) {
            return line;
        }
    }
}

impl Drop for ConfigServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct WireResponse {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl WireResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Sends a request and reads until the other side closes.
pub(crate) fn exchange(
    stream: &mut (impl Read + Write),
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> WireResponse {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    // The server may have closed it already.
    let _ = stream.write_all(format!("{head}\r\n").as_bytes());
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        // The server closed the connection without a response.
        return WireResponse { status: 0, headers: BTreeMap::new(), body: Vec::new() };
    };
    let text = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = text.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    WireResponse { status, headers, body: bytes[end + 4..].to_vec() }
}

pub(crate) fn paths(response: &Value) -> Vec<&str> {
    let files = response["storage"]["files"].as_array().unwrap();
    files.iter().map(|file| file["path"].as_str().unwrap()).collect()
}

/// A TLS client.
#[derive(Default)]
pub(crate) struct TlsClient<'a> {
    pub(crate) alpn: &'a [&'a [u8]],
    pub(crate) old: bool,
    /// A certificate and its key, as PEM.
    pub(crate) identity: Option<(&'a str, &'a str)>,
}

/// The certificate of the server, and its response.
pub(crate) fn request_tls(
    site: &ServerFixture,
    server: &ConfigServerProcess,
    tls: &TlsClient<'_>,
    path: &str,
) -> std::io::Result<(Vec<u8>, WireResponse)> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(site.ca.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = if tls.old { &[&rustls::version::TLS12][..] } else { rustls::DEFAULT_VERSIONS };
    let builder =
        ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match tls.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = tls.alpn.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection =
        ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, TcpStream::connect(server.secure)?);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    let shown = stream.conn.peer_certificates().unwrap()[0].to_vec();
    let response = exchange(&mut stream, "GET", path, &[]);
    Ok((shown, response))
}
