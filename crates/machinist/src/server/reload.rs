//! Reloads the server's certificate when its files change, without a restart.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::tls::{ConfigServerCertificate, PemPair};

/// Reads a certificate and its key.
pub(super) async fn read(certificate: &Path, key: &Path) -> Result<PemPair> {
    let read = async |path: &Path| {
        let bytes = tokio::fs::read(path).await;
        bytes.with_context(|| format!("cannot read {}", path.display()))
    };
    Ok(PemPair { certificate: read(certificate).await?, key: read(key).await? })
}

/// Checks the files periodically. While only one of the two is replaced, the old pair stays in use.
pub(super) async fn watch_files(
    certificate: PathBuf,
    key: PathBuf,
    current: ConfigServerCertificate,
    interval: Duration,
) {
    let mut known = read(&certificate, &key).await.ok();
    loop {
        tokio::time::sleep(interval).await;
        let Ok(pair) = read(&certificate, &key).await else { continue };
        if known.as_ref() == Some(&pair) {
            continue;
        }
        match current.replace(&pair) {
            Ok(()) => tracing::info!(file = %certificate.display(), "serving certificate replaced"),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(file = %certificate.display(), error, "cannot use the new serving certificate");
            }
        }
        known = Some(pair);
    }
}
