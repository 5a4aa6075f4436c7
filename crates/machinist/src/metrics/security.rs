//! How the metrics endpoint of a process is protected: what the flags say, and the certificate.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use machinist_core::metrics_access::{ListenerProtection, ProtectionFlags, protection};
use machinist_hub::failure_log::FailureLog;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::serving_certificate::{self, CertificateFiles, ServingCertificate};

/// How often the files of a certificate are checked.
const FILE_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The name in a self-signed certificate.
const SELF_SIGNED_NAME: &str = "machinist-metrics";

/// Where and how a process serves its metrics.
#[derive(Debug, Clone)]
pub struct MetricsOptions {
    /// The address.
    pub listen: SocketAddr,
    /// How it is protected.
    pub security: MetricsSecurity,
}

/// The protection that the command line asks for. The default protects every address but loopback addresses.
#[derive(Debug, Clone, Default)]
pub struct MetricsSecurity {
    /// HTTPS and authentication, on a loopback address too.
    pub secure: bool,
    /// Plain HTTP for everyone, on any address.
    pub insecure: bool,
    /// The certificate.
    pub certificate: MetricsCertificate,
}

/// The certificate of a metrics endpoint.
#[derive(Debug, Clone, Default)]
pub enum MetricsCertificate {
    /// One that is created at the start and that nobody has signed.
    #[default]
    SelfSigned,
    /// Files, which are read again when they change.
    Files(CertificateFiles),
    /// The certificate that the process serves something else with.
    Shared(ServingCertificate),
}

impl MetricsSecurity {
    /// The protection of a listener.
    ///
    /// # Errors
    /// The address needs authentication, and there is no API server that could verify tokens.
    pub(crate) fn protection(
        &self,
        address: SocketAddr,
        has_api_server: bool,
    ) -> Result<ListenerProtection> {
        let secure = self.secure || matches!(self.certificate, MetricsCertificate::Files(_));
        let flags = ProtectionFlags { secure, insecure: self.insecure, has_api_server };
        protection(address, flags).map_err(anyhow::Error::msg)
    }

    /// Accepts TLS connections; follows the files of the certificate until the tasks end.
    pub(super) async fn acceptor(
        &self,
        tasks: &mut JoinSet<()>,
        failures: &FailureLog,
    ) -> Result<TlsAcceptor> {
        let certificate = match &self.certificate {
            MetricsCertificate::SelfSigned => ServingCertificate::self_signed(SELF_SIGNED_NAME)?,
            MetricsCertificate::Shared(certificate) => certificate.clone(),
            MetricsCertificate::Files(files) => {
                let context = "--metrics-tls-cert and --metrics-tls-key";
                let pair = serving_certificate::read(files).await.context(context)?;
                let certificate = ServingCertificate::new(&pair).context(context)?;
                let current = certificate.clone();
                let (files, failures) = (files.clone(), failures.clone());
                let interval = FILE_POLL_INTERVAL;
                tasks.spawn(serving_certificate::watch_files(files, current, interval, failures));
                certificate
            }
        };
        certificate.acceptor()
    }
}
