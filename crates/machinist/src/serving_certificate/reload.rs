//! Reloads a certificate when its files change, without a restart.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{CertificateFiles, PemPair, ServingCertificate};

/// Reads a certificate and its key.
pub(crate) async fn read(files: &CertificateFiles) -> Result<PemPair> {
    let read = async |path: &Path| {
        let bytes = tokio::fs::read(path).await;
        bytes.with_context(|| format!("cannot read {}", path.display()))
    };
    Ok(PemPair { certificate: read(&files.certificate).await?, key: read(&files.key).await? })
}

/// Checks the files periodically. While only one of the two is replaced, the old pair stays in use.
pub(crate) async fn watch_files(
    files: CertificateFiles,
    current: ServingCertificate,
    interval: Duration,
) {
    let mut known = read(&files).await.ok();
    let certificate = files.certificate.display();
    loop {
        tokio::time::sleep(interval).await;
        let Ok(pair) = read(&files).await else { continue };
        if known.as_ref() == Some(&pair) {
            continue;
        }
        match current.replace(&pair) {
            Ok(()) => tracing::info!(file = %certificate, "serving certificate replaced"),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(file = %certificate, error, "cannot use the new serving certificate");
            }
        }
        known = Some(pair);
    }
}
