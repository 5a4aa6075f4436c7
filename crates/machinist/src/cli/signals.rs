//! When a process is told to stop.

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

use crate::systemd_notify;

/// Ends when the process is told to stop; it listens from now on.
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
