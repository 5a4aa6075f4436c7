//! Stop signals of long-running processes.

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

use crate::systemd_notify;

/// Completes on SIGTERM or SIGINT. Signals are caught from this call on, not from the first poll.
pub(super) fn shutdown_signal() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        systemd_notify::stopping();
    })
}
