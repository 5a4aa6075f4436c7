//! Renews the client certificate of the machine with itself before it expires.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use machinist_hub::failure_log::FailureLog;

use super::super::join::credentials::{self, IdentityRequest};
use super::super::join::identity_copy;
use super::super::join::paths::JoinPaths;
use super::super::join::write_identity;
use super::{DaemonExit, ExitReason};

/// How often the certificate is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// Checks the certificate from time to time; stops the daemon when there is a new one.
pub(super) async fn renew(root: PathBuf, name: String, failures: FailureLog, exit: DaemonExit) {
    // Tried again after hours.
    let failures = failures.lasting();
    loop {
        let renewed = try_renew(&root, &name).await;
        if failures.record("renew the client certificate", "", renewed) == Some(true) {
            tracing::info!(node = name, "renewed the client certificate");
            exit.end(ExitReason::CertificateRenewed);
            return;
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

async fn try_renew(root: &Path, name: &str) -> Result<bool> {
    let path = JoinPaths::new(root).kubeconfig();
    let kubeconfig = match credentials::read_flattened(&path) {
        // This daemon works with what it has read when it started. The next one could not.
        Err(_) if identity_copy::restore(root)? => credentials::read_flattened(&path)?,
        read => read?,
    };
    if !credentials::needs_renewal(&kubeconfig) {
        return Ok(false);
    }
    // Not kept on disk: the old certificate can request another one after an interruption.
    let request = IdentityRequest::generate(&kubeconfig, name)?;
    let max_wait = credentials::CERTIFICATE_TIMEOUT;
    let new = credentials::issue_identity(&kubeconfig, &request, &[], max_wait).await?;
    write_identity(root, &new)?;
    Ok(true)
}
