//! The flags that protect the metrics of a process, for every command that serves them.

use std::path::PathBuf;

use clap::Args;

use crate::metrics::{MetricsCertificate, MetricsSecurity};
use crate::serving_certificate::CertificateFiles;

/// How metrics are protected.
#[derive(Debug, Args)]
pub(super) struct MetricsSecurityArgs {
    /// Serve metrics over HTTPS to clients with a token that may read them, on a loopback address too; other
    /// addresses are always served like this
    #[arg(long, help_heading = "Metrics")]
    metrics_secure: bool,

    /// Serve metrics over plain HTTP to everyone who can connect, on any address
    #[arg(long, help_heading = "Metrics", conflicts_with_all = ["metrics_secure", "metrics_tls_cert"])]
    metrics_insecure: bool,

    /// The certificate for metrics over HTTPS; it is read again when it changes [default: one that is created
    /// at the start]
    #[arg(long, value_name = "FILE", help_heading = "Metrics", requires = "metrics_tls_key")]
    metrics_tls_cert: Option<PathBuf>,

    /// The private key of --metrics-tls-cert
    #[arg(long, value_name = "FILE", help_heading = "Metrics", requires = "metrics_tls_cert")]
    metrics_tls_key: Option<PathBuf>,
}

impl MetricsSecurityArgs {
    pub(super) fn security(&self) -> MetricsSecurity {
        let files = self.metrics_tls_cert.clone().zip(self.metrics_tls_key.clone());
        let certificate = files.map_or(MetricsCertificate::SelfSigned, |(certificate, key)| {
            MetricsCertificate::Files(CertificateFiles { certificate, key })
        });
        MetricsSecurity {
            secure: self.metrics_secure,
            insecure: self.metrics_insecure,
            certificate,
        }
    }

    /// The same flags for another command.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        for (flag, is_set) in [
            ("--metrics-secure", self.metrics_secure),
            ("--metrics-insecure", self.metrics_insecure),
        ] {
            arguments.extend(is_set.then(|| flag.to_owned()));
        }
        let files = [
            ("--metrics-tls-cert", &self.metrics_tls_cert),
            ("--metrics-tls-key", &self.metrics_tls_key),
        ];
        for (flag, file) in files {
            if let Some(file) = file {
                arguments.extend([flag.to_owned(), file.display().to_string()]);
            }
        }
        arguments
    }
}
