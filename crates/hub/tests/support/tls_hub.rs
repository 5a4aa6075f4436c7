//! A hub on a TLS port.
use std::net::SocketAddr;
use std::sync::Arc;

use machinist_hub::auth::certificates::{CertificateAuthority, PemKeyPair};
use machinist_hub::auth::{ADMIN_GROUP, NODE_GROUP};
use machinist_hub::server::{ConnectionLimits, HubServer, HubServingCertificate};
use machinist_hub::store::{Store, StoreOptions};
use machinist_hub::{Hub, HubConfig};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) struct TlsHub {
    pub(crate) hub: Hub,
    pub(crate) address: SocketAddr,
    pub(crate) ca: PemKeyPair,
    pub(crate) admin: PemKeyPair,
}

impl TlsHub {
    pub(crate) async fn start(limits: ConnectionLimits) -> Self {
        let ca = CertificateAuthority::generate("test").unwrap();
        let issuer = CertificateAuthority::from_pem(&ca).unwrap();
        let pair = issuer.issue_server("hub", &["127.0.0.1".to_owned()]).unwrap();
        let admin = issuer.issue_client("admin", ADMIN_GROUP).unwrap();
        let config = HubConfig { ca: Some(issuer), ..HubConfig::default() };
        let hub = Hub::start(Store::in_memory(StoreOptions::default()), config).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server =
            HubServer::new(&HubServingCertificate::new(&pair).unwrap(), &ca.certificate).unwrap();
        let server = server.with_limits(limits);
        tokio::spawn(server.run(listener, hub.router(), hub.cancellation_token()));
        Self { hub, address, ca, admin }
    }

    pub(crate) async fn connect(
        &self,
        identity: Option<&PemKeyPair>,
        protocol: &[u8],
    ) -> TlsStream<TcpStream> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.certificate.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![chain], key).unwrap()
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::IpAddress(self.address.ip().into());
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
    }

    /// The certificate of a machine.
    pub(crate) fn machine(&self, name: &str) -> PemKeyPair {
        let issuer = CertificateAuthority::from_pem(&self.ca).unwrap();
        issuer.issue_client(&format!("system:node:{name}"), NODE_GROUP).unwrap()
    }

    pub(crate) async fn connect_anonymous(&self) -> TlsStream<TcpStream> {
        self.connect(None, b"http/1.1").await
    }

    pub(crate) async fn connect_admin(&self) -> TlsStream<TcpStream> {
        self.connect(Some(&self.admin), b"http/1.1").await
    }
}
