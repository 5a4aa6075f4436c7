//! The server's certificate in files: whoever replaces them need not restart anything.

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

/// Looks at the files for ever. While one of the two is replaced and the other not yet, the old pair stays.
pub(super) async fn watch_files(
    certificate: PathBuf,
    key: PathBuf,
    current: ConfigServerCertificate,
    every: Duration,
) {
    let mut known = read(&certificate, &key).await.ok();
    loop {
        tokio::time::sleep(every).await;
        let Ok(pair) = read(&certificate, &key).await else { continue };
        if known.as_ref() == Some(&pair) {
            continue;
        }
        match current.replace(&pair) {
            Ok(()) => tracing::info!(file = %certificate.display(), "serving certificate replaced"),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(file = %certificate.display(), error, "cannot use the new certificate");
            }
        }
        known = Some(pair);
    }
}
