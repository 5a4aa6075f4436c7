//! TLS of the server: versions, cipher suites and client certificates.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite};
use tokio_rustls::TlsAcceptor;

use crate::serving_certificate::ServingCertificate;

/// What is spoken.
#[derive(Debug, Clone, Default)]
pub struct ServerTlsSettings {
    /// The lowest version, as `VersionTLS12`.
    pub min_version: String,
    /// The suites by their IANA names; none is the library's choice.
    pub cipher_suites: Vec<String>,
}

impl ServerTlsSettings {
    /// The TLS acceptor. With `clients`, the certificate of a CA, clients may present a certificate of that CA.
    pub(super) fn acceptor(
        &self,
        certificate: &ServingCertificate,
        clients: Option<&str>,
    ) -> Result<TlsAcceptor> {
        let mut provider = rustls::crypto::ring::default_provider();
        let min_version = select_cipher_suites(self, &mut provider);
        let versions: &[&rustls::SupportedProtocolVersion] = match min_version {
            MinTlsVersion::Tls13 => &[&rustls::version::TLS13],
            MinTlsVersion::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        };
        let provider = Arc::new(provider);
        let verifier: Arc<dyn ClientCertVerifier> = match clients {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                    .allow_unauthenticated()
                    .build()?
            }
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .context("--tls-min-version and --tls-cipher-suites allow no cipher suite")?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(certificate.clone()));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A machine connects once, so sessions are not kept.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum MinTlsVersion {
    Tls12,
    Tls13,
}

/// Keeps the named cipher suites. Unlike in MCO, the version applies without suites, too: who asks for TLS 1.3
/// does not expect TLS 1.2.
fn select_cipher_suites(
    settings: &ServerTlsSettings,
    provider: &mut CryptoProvider,
) -> MinTlsVersion {
    let lowest = match settings.min_version.as_str() {
        "VersionTLS13" => MinTlsVersion::Tls13,
        // rustls does not support versions older than 1.2.
        _ => MinTlsVersion::Tls12,
    };
    if settings.cipher_suites.is_empty() {
        return lowest;
    }
    for name in &settings.cipher_suites {
        if !provider.cipher_suites.iter().any(|suite| name_of(suite) == *name) {
            tracing::info!(suite = name, "cipher suite is not supported: it is weak or unknown");
        }
    }
    // The suites of TLS 1.3 are all secure and cannot be selected.
    provider.cipher_suites.retain(|suite| {
        suite.tls13().is_some() || settings.cipher_suites.contains(&name_of(suite))
    });
    lowest
}

fn name_of(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replace("TLS13_", "TLS_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(min_version: &str, suites: &[&str]) -> (MinTlsVersion, usize) {
        let cipher_suites = suites.iter().map(|&suite| suite.to_owned()).collect();
        let settings = ServerTlsSettings { min_version: min_version.to_owned(), cipher_suites };
        let mut provider = rustls::crypto::ring::default_provider();
        let lowest = select_cipher_suites(&settings, &mut provider);
        (lowest, provider.cipher_suites.len())
    }

    #[test]
    fn versions_and_cipher_suites_are_selected() {
        let all = rustls::crypto::ring::default_provider().cipher_suites.len();
        let one = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        for (version, suites, expected) in [
            ("VersionTLS12", &[][..], (MinTlsVersion::Tls12, all)),
            ("VersionTLS13", &[][..], (MinTlsVersion::Tls13, all)),
            ("", &[][..], (MinTlsVersion::Tls12, all)),
            ("", &[one][..], (MinTlsVersion::Tls12, 4)),
            ("VersionTLS12", &[one][..], (MinTlsVersion::Tls12, 4)),
            ("VersionTLS10", &[one, "TLS_RSA_WITH_AES_128_CBC_SHA"][..], (MinTlsVersion::Tls12, 4)),
            ("VersionTLS13", &["TLS_AES_128_GCM_SHA256"][..], (MinTlsVersion::Tls13, 3)),
        ] {
            assert_eq!(chosen(version, suites), expected, "{version} {suites:?}");
        }
    }
}
