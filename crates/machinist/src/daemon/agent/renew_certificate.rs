//! The machine's certificate, renewed before it ends with the certificate itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use tokio_util::sync::CancellationToken;

use super::super::join::credentials;
use super::super::join::paths::JoinPaths;
use super::super::join::write_identity;

/// How often it is looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// Looks at the certificate now and then; ends the daemon's present life when there is a new one.
pub(super) async fn renew(root: PathBuf, name: String, stop: CancellationToken) {
    loop {
        match try_renew(&root, &name).await {
            Ok(true) => {
                tracing::info!("the certificate of {name} is renewed");
                stop.cancel();
                return;
            }
            Ok(false) => {}
            Err(error) => tracing::warn!("the certificate cannot be renewed: {error:#}"),
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

async fn try_renew(root: &Path, name: &str) -> Result<bool> {
    let kubeconfig = credentials::read_flattened(&JoinPaths::new(root).kubeconfig())?;
    if !credentials::needs_renewal(&kubeconfig) {
        return Ok(false);
    }
    let new = credentials::issue_identity(&kubeconfig, name).await?;
    write_identity(root, &new)?;
    Ok(true)
}
