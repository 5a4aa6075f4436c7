//! Reloads a certificate when its files change, without a restart.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use machinist_hub::failure_log::FailureLog;

use super::{CertificateFiles, PemPair, ServingCertificate};

/// Reads a certificate and its key.
pub(crate) async fn read(files: &CertificateFiles) -> Result<PemPair> {
    let read = async |path: &Path| {
        let bytes = tokio::fs::read(path).await;
        bytes.with_context(|| format!("cannot read {}", path.display()))
    };
    Ok(PemPair { certificate: read(&files.certificate).await?, key: read(&files.key).await? })
}

/// Checks the files periodically. The old pair stays in use while only one of the two is replaced, and for as long as the
/// new one cannot be used; that is reported.
pub(crate) async fn watch_files(
    files: CertificateFiles,
    current: ServingCertificate,
    interval: Duration,
    failures: FailureLog,
) {
    const TASK: &str = "replace the serving certificate";
    let mut known = read(&files).await.ok();
    let certificate = files.certificate.display().to_string();
    loop {
        tokio::time::sleep(interval).await;
        let replaced = read(&files).await.and_then(|pair| {
            if known.as_ref() == Some(&pair) {
                return Ok(());
            }
            current.replace(&pair)?;
            tracing::info!(file = certificate, "serving certificate replaced");
            known = Some(pair);
            Ok(())
        });
        failures.record(TASK, &certificate, replaced);
    }
}
