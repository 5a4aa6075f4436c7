//! Readiness and watchdog messages for systemd, for services with `Type=notify` and `WatchdogSec=`.
//!
//! A process that systemd did not start with `NOTIFY_SOCKET` is unaffected: every function here then
//! does nothing. A message that cannot be sent is logged and is never an error: the service works
//! without it. Called by the commands that run for long.

use std::time::Duration;

use sd_notify::NotifyState;

/// The variables with which systemd asks for messages. Commands that a service runs must not inherit
/// them: some tools would send messages of their own.
pub(crate) const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Whether systemd has started this process as a service that reports readiness.
pub(crate) fn is_service() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Reports that the service does its work from now on.
pub(crate) fn ready() {
    send(NotifyState::Ready);
}

/// Reports that the service is about to stop.
pub(crate) fn stopping() {
    send(NotifyState::Stopping);
}

/// Starts a task that keeps systemd's watchdog from killing the service, if there is a watchdog.
///
/// The task runs on the runtime of the caller, so a runtime that is stuck sends nothing. Before each
/// message it waits for `is_alive`; a check that hangs or returns false sends nothing either.
pub(crate) fn start_watchdog<F>(is_alive: impl Fn() -> F + Send + 'static)
where
    F: Future<Output = bool> + Send + 'static,
{
    let Some(timeout) = sd_notify::watchdog_enabled() else { return };
    let mut ticks = tokio::time::interval(watchdog_interval(timeout));
    tokio::spawn(async move {
        loop {
            ticks.tick().await;
            if is_alive().await {
                send(NotifyState::Watchdog);
            } else {
                tracing::error!("the liveness check failed, systemd will restart this service");
            }
        }
    });
}

/// Half of the timeout, as `sd_watchdog_enabled(3)` recommends. An interval of zero would panic.
fn watchdog_interval(timeout: Duration) -> Duration {
    (timeout / 2).max(Duration::from_millis(1))
}

fn send(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot send a message to systemd");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_fed_twice_per_timeout() {
        assert_eq!(watchdog_interval(Duration::from_secs(60)), Duration::from_secs(30));
        assert_eq!(watchdog_interval(Duration::ZERO), Duration::from_millis(1));
    }
}
