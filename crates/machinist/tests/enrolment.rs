//! Anonymous enrolment requests against a real hub: a flood does not keep other machines out.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use machinist_core::serve::enrol::{
    ENROLMENT_LABEL, MAX_PENDING, MAX_PENDING_PER_ADDRESS, subject,
};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sha2::{Digest as _, Sha256};

/// No step takes this long on a working machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A hub with sealed configs; killed when it is dropped.
struct SealedHub {
    child: Child,
    server: SocketAddr,
    data: tempfile::TempDir,
}

impl SealedHub {
    fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_machinist"))
            .args(["up", "--api-listen=127.0.0.1:0", "--server-listen=127.0.0.1:0"])
            .args(["--server-anonymous", "--server-sealed-url=https://127.0.0.1:1", "--data-dir"])
            .arg(data.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, rest) = line.split_once("machines    https://")?;
            rest.split('/').next()?.parse().ok()
        });
        std::thread::spawn(move || lines.count());
        let hub = Self { child, server: address.unwrap(), data };
        hub.render();
        hub
    }

    /// Gives the pool worker a config.
    fn render(&self) {
        let file = self.data.path().join("config.yaml");
        let text = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\n\
                    metadata: {name: a, labels: {machineconfiguration.openshift.io/role: worker}}\n\
                    spec: {config: {ignition: {version: 3.5.0}}}\n";
        fs::write(&file, text).unwrap();
        let kubeconfig = self.data.path().join("kubeconfig");
        let mut apply = Command::new(env!("CARGO_BIN_EXE_machinist"));
        let output =
            apply.arg("apply").arg("-f").arg(&file).env("KUBECONFIG", kubeconfig).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let start = Instant::now();
        while EnrolClient::connect(self, Ipv4Addr::new(127, 0, 9, 9)).get("/config/worker") != 200 {
            assert!(start.elapsed() < TIMEOUT, "the pool is not rendered");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    async fn pending(&self) -> usize {
        let file = Kubeconfig::read_from(self.data.path().join("kubeconfig")).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(file, &options).await.unwrap();
        let api: Api<Secret> = Api::all(kube::Client::try_from(config).unwrap());
        let pending = ListParams::default().labels(&format!("{ENROLMENT_LABEL}=pending"));
        api.list(&pending).await.unwrap().items.len()
    }
}

impl Drop for SealedHub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection from one address of this host.
struct EnrolClient {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

impl EnrolClient {
    fn connect(hub: &SealedHub, from: Ipv4Addr) -> Self {
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&fd, &SocketAddrV4::new(from, 0)).unwrap();
        connect(&fd, &hub.server).unwrap();
        let mut roots = RootCertStore::empty();
        let ca = fs::read(hub.data.path().join("pki/ca.crt")).unwrap();
        roots.add(CertificateDer::from_pem_slice(&ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        Self { stream: StreamOwned::new(connection, TcpStream::from(fd)) }
    }

    fn get(&mut self, path: &str) -> u16 {
        self.exchange(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }

    /// Requests a certificate with a key of its own.
    fn enrol(&mut self, key: &KeyPair) -> u16 {
        let hash = Sha256::digest(key.der_bytes());
        let (user, group) = subject("worker", &machinist_core::hex::hex(&hash[..16]));
        let mut request = CertificateParams::default();
        request.distinguished_name = DistinguishedName::new();
        request.distinguished_name.push(DnType::OrganizationName, group);
        request.distinguished_name.push(DnType::CommonName, user);
        let body = request.serialize_request(key).unwrap().pem().unwrap();
        let length = body.len();
        self.exchange(&format!(
            "POST /enrol/worker?name=n HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }

    fn exchange(&mut self, request: &str) -> u16 {
        self.stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|it| it.lines().next());
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.stream.read_exact(&mut body).unwrap();
        head.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_requests_does_not_block_enrolment() {
    let hub = SealedHub::start();
    // One address gets its share, and no more.
    let mut flood = EnrolClient::connect(&hub, Ipv4Addr::new(127, 0, 1, 1));
    let first = key();
    assert_eq!(flood.enrol(&first), 202);
    for _ in 1..MAX_PENDING_PER_ADDRESS {
        assert_eq!(flood.enrol(&key()), 202);
    }
    for _ in 0..10 {
        assert_eq!(flood.enrol(&key()), 503);
    }
    // A machine that waits is not refused, and another address is not affected.
    assert_eq!(flood.enrol(&first), 202);
    let machine = key();
    assert_eq!(EnrolClient::connect(&hub, Ipv4Addr::new(127, 0, 2, 1)).enrol(&machine), 202);
    // Many addresses fill the list; then the oldest request is dropped.
    let addresses = MAX_PENDING / MAX_PENDING_PER_ADDRESS;
    for host in 0..u8::try_from(addresses).unwrap() {
        let mut flood = EnrolClient::connect(&hub, Ipv4Addr::new(127, 0, 3, host + 1));
        for _ in 0..MAX_PENDING_PER_ADDRESS {
            assert_eq!(flood.enrol(&key()), 202);
        }
    }
    assert_eq!(hub.pending().await, MAX_PENDING);
    assert_eq!(EnrolClient::connect(&hub, Ipv4Addr::new(127, 0, 4, 1)).enrol(&key()), 202);
    // The machine asks again, as it does every few seconds, and waits again.
    assert_eq!(EnrolClient::connect(&hub, Ipv4Addr::new(127, 0, 2, 1)).enrol(&machine), 202);
    assert_eq!(hub.pending().await, MAX_PENDING);
}
