//! The endpoint over real sockets and TLS, with an API server that counts reviews, against clients that mean harm.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use machinist_hub::auth::certificates::{CertificateAuthority, PemKeyPair};
use machinist_hub::failure_log::FailureLog;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::*;
use crate::serving_certificate::{PemPair, ServingCertificate};

/// An API server that knows the tokens `reader` and `stranger`.
#[derive(Debug, Clone, Default)]
struct FakeApiServer {
    reviews: Arc<AtomicUsize>,
    /// The status of every response, if it is not 201.
    failure: Arc<AtomicU16>,
}

impl FakeApiServer {
    fn client(&self) -> kube::Client {
        let (token, access) = (self.clone(), self.clone());
        let token_review = move |body: String| async move {
            let sent: Value = serde_json::from_str(&body).unwrap();
            token.reviews.fetch_add(1, Ordering::SeqCst);
            let status = match sent["spec"]["token"].as_str().unwrap() {
                "reader" => json!({"authenticated": true, "user": {"username": "prometheus"}}),
                "stranger" => json!({"authenticated": true, "user": {"username": "mallory"}}),
                _ => json!({"authenticated": false, "error": "unknown"}),
            };
            token.response("authentication.k8s.io/v1", "TokenReview", &status)
        };
        let access_review = move |body: String| async move {
            let sent: Value = serde_json::from_str(&body).unwrap();
            let asked = &sent["spec"]["nonResourceAttributes"];
            let is_reader = sent["spec"]["user"] == "prometheus";
            let may = is_reader && *asked == json!({"path": "/metrics", "verb": "get"});
            let status = json!({"allowed": may});
            access.response("authorization.k8s.io/v1", "SubjectAccessReview", &status)
        };
        let router = Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(token_review))
            .route("/apis/authorization.k8s.io/v1/subjectaccessreviews", post(access_review));
        kube::Client::new(router, "default")
    }

    fn response(&self, version: &str, kind: &str, status: &Value) -> (StatusCode, String) {
        match self.failure.load(Ordering::SeqCst) {
            0 => {
                let review =
                    json!({"apiVersion": version, "kind": kind, "spec": {}, "status": status});
                (StatusCode::CREATED, review.to_string())
            }
            code => {
                let failure = json!({"kind": "Status", "code": code, "message": "no", "reason": "x", "status": "Failure"});
                (StatusCode::from_u16(code).unwrap(), failure.to_string())
            }
        }
    }
}

/// The endpoint of a process that is always ready.
fn always_ready(sources: Vec<MetricsSource>) -> MetricsEndpoint {
    MetricsEndpoint { sources, readiness: Readiness::always(FailureLog::default()) }
}

/// A running endpoint.
struct TestEndpoint {
    address: SocketAddr,
    connector: Option<TlsConnector>,
    _tasks: JoinSet<()>,
}

fn authority() -> (CertificateAuthority, String) {
    let pair = CertificateAuthority::generate("test").unwrap();
    (CertificateAuthority::from_pem(&pair).unwrap(), pair.certificate)
}

fn pem_pair(pair: PemKeyPair) -> PemPair {
    PemPair { certificate: pair.certificate.into(), key: pair.key.into() }
}

impl TestEndpoint {
    async fn start(security: MetricsSecurity, client: Option<kube::Client>) -> Self {
        let (ca, root) = authority();
        let pair = pem_pair(ca.issue_server("m", &["127.0.0.1".to_owned()]).unwrap());
        let certificate = MetricsCertificate::Shared(ServingCertificate::new(&pair).unwrap());
        let security = MetricsSecurity { certificate, ..security };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        let source = MetricsSource::new(|text| text.push_str("a_metric 1\n"));
        let endpoint = always_ready(vec![source]);
        endpoint.start(listener, &security, client, &mut tasks).await.unwrap();
        let connector = security.secure.then(|| connector(&root));
        Self { address, connector, _tasks: tasks }
    }

    async fn secure(server: &FakeApiServer) -> Self {
        let security = MetricsSecurity { secure: true, ..MetricsSecurity::default() };
        Self::start(security, Some(server.client())).await
    }

    /// The status code, or 0 if the connection was closed, and the whole response.
    async fn get(&self, path: &str, headers: &str) -> (u16, String) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        let name = "127.0.0.1".try_into().unwrap();
        let text = match &self.connector {
            Some(connector) => {
                let stream = connector.connect(name, stream).await.unwrap();
                exchange(stream, &request).await
            }
            None => exchange(stream, &request).await,
        };
        let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        (status, text)
    }

    async fn metrics(&self, token: &str) -> (u16, String) {
        self.get("/metrics", &format!("Authorization: Bearer {token}\r\n")).await
    }
}

fn connector(root: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    let mut bytes = Vec::new();
    // A server that refuses a request may close the connection while it is still sent.
    let _ = stream.write_all(request.as_bytes()).await;
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn only_a_token_with_permission_reads_metrics() {
    let server = FakeApiServer::default();
    let endpoint = TestEndpoint::secure(&server).await;
    let (status, text) = endpoint.get("/metrics", "").await;
    assert!(status == 401 && text.to_lowercase().contains("www-authenticate: bearer"), "{text}");
    assert_eq!(server.reviews.load(Ordering::SeqCst), 0);
    let (status, text) = endpoint.metrics("reader").await;
    assert!(status == 200 && text.contains("a_metric 1\n"), "{text}");
    let (status, text) = endpoint.metrics("stranger").await;
    assert!(status == 403 && text.contains("mallory may not get /metrics"), "{text}");
    for bad in ["garbage", "%00", "a b"] {
        let (status, text) = endpoint.metrics(bad).await;
        assert!(status == 401 && !text.contains("a_metric"), "{bad}: {text}");
    }
    // Several headers, another scheme.
    assert_eq!(endpoint.get("/metrics", "Authorization: Basic cmVhZGVy\r\n").await.0, 401);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(endpoint.get(path, "").await.0, 200, "{path}");
    }
    // Plain HTTP on the port of TLS gets nothing.
    let plain = TestEndpoint { connector: None, _tasks: JoinSet::new(), ..endpoint };
    assert_eq!(plain.metrics("reader").await.0, 0);
}

#[tokio::test]
async fn reviews_are_cached() {
    let server = FakeApiServer::default();
    let endpoint = TestEndpoint::secure(&server).await;
    for _ in 0..20 {
        assert_eq!(endpoint.metrics("reader").await.0, 200);
        assert_eq!(endpoint.metrics("garbage").await.0, 401);
    }
    assert_eq!(server.reviews.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_huge_token_never_reaches_the_api_server() {
    let server = FakeApiServer::default();
    let endpoint = TestEndpoint::secure(&server).await;
    for (size, expected) in [(9_000, &[401][..]), (1 << 20, &[431, 0][..])] {
        let (status, text) = endpoint.metrics(&"a".repeat(size)).await;
        assert!(expected.contains(&status), "{size}: {status} {text:.200}");
    }
    assert_eq!(server.reviews.load(Ordering::SeqCst), 0);
    assert_eq!(endpoint.metrics("reader").await.0, 200);
}

#[tokio::test]
async fn thousands_of_bad_tokens_cause_few_reviews_and_lock_nobody_out() {
    let server = FakeApiServer::default();
    let endpoint = TestEndpoint::secure(&server).await;
    assert_eq!(endpoint.metrics("reader").await.0, 200);
    let started = Instant::now();
    let (mut rejected, mut throttled) = (0, 0);
    for number in 0..2000 {
        match endpoint.metrics(&format!("bad{number}")).await.0 {
            401 => rejected += 1,
            503 => throttled += 1,
            other => panic!("{other}"),
        }
    }
    // A burst of 20, then 5 a second.
    let most = 20 + 5 * usize::try_from(started.elapsed().as_secs() + 1).unwrap();
    let reviews = server.reviews.load(Ordering::SeqCst);
    assert!(rejected == reviews - 1 && reviews <= most, "{reviews} reviews, at most {most}");
    assert_eq!(rejected + throttled, 2000);
    assert_eq!(endpoint.metrics("reader").await.0, 200);
}

#[tokio::test]
async fn metrics_are_refused_while_the_api_server_cannot_be_asked() {
    let server = FakeApiServer::default();
    let endpoint = TestEndpoint::secure(&server).await;
    for code in [500, 403] {
        server.failure.store(code, Ordering::SeqCst);
        let (status, text) = endpoint.metrics("reader").await;
        assert_eq!(status, 503, "{text}");
        assert!(text.contains("the API server could not verify the token"), "{text}");
        assert!(text.to_lowercase().contains("retry-after:") && !text.contains("a_metric"));
        // Probes do not depend on the API server.
        assert_eq!(endpoint.get("/readyz", "Authorization: Bearer reader\r\n").await.0, 200);
    }
    server.failure.store(0, Ordering::SeqCst);
    assert_eq!(endpoint.metrics("reader").await.0, 200);
}

#[tokio::test]
async fn idle_connections_do_not_keep_clients_out() {
    let server = FakeApiServer::default();
    let endpoint = TestEndpoint::secure(&server).await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(TcpStream::connect(endpoint.address).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(idle.drain(..250));
    assert_eq!(endpoint.metrics("reader").await.0, 200);
}

#[tokio::test]
async fn a_loopback_address_is_open_and_others_need_an_api_server() {
    let endpoint = TestEndpoint::start(MetricsSecurity::default(), None).await;
    let (status, text) = endpoint.get("/metrics", "").await;
    assert!(status == 200 && text.contains("text/plain") && text.contains("a_metric 1"), "{text}");
    assert_eq!(endpoint.get("/other", "").await.0, 404);
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let endpoint = always_ready(Vec::new());
    let security = MetricsSecurity::default();
    let error = endpoint.start(listener, &security, None, &mut JoinSet::new()).await.unwrap_err();
    assert!(error.to_string().contains("--metrics-insecure"), "{error}");
}

#[tokio::test]
async fn the_files_of_a_certificate_must_be_readable() {
    let directory = tempfile::tempdir().unwrap();
    let files = crate::serving_certificate::CertificateFiles {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    let certificate = MetricsCertificate::Files(files.clone());
    let security = MetricsSecurity { certificate, ..MetricsSecurity::default() };
    let start = async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Some(FakeApiServer::default().client());
        let mut tasks = JoinSet::new();
        always_ready(Vec::new()).start(listener, &security, client, &mut tasks).await
    };
    let error = format!("{:#}", start().await.unwrap_err());
    assert!(error.contains("--metrics-tls-cert") && error.contains("tls.crt"), "{error}");
    let pair = pem_pair(authority().0.issue_server("m", &["a".to_owned()]).unwrap());
    std::fs::write(&files.certificate, &pair.certificate).unwrap();
    std::fs::write(&files.key, &pair.key).unwrap();
    start().await.unwrap();
}
