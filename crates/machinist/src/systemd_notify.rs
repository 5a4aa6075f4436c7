//! Readiness and watchdog messages for systemd, for services with `Type=notify` and `WatchdogSec=`.
//!
//! A process that systemd did not start with `NOTIFY_SOCKET` is unaffected: every function here then
//! does nothing. A message that cannot be sent is logged and is never an error: the service works
//! without it. Called by the commands that run for long.

use std::sync::mpsc::sync_channel;
use std::thread;
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
    let (pings, received) = sync_channel(1);
    // A thread of its own: sending waits while systemd reads nothing, and nothing else must wait with it.
    let sender = thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
        while received.recv().is_ok() {
            send(NotifyState::Watchdog);
        }
    });
    if let Err(error) = sender {
        tracing::warn!(%error, "cannot start the thread that feeds the watchdog of systemd");
        return;
    }
    // One message that waits says as much as several.
    let ping = move || {
        let _ = pings.try_send(());
    };
    tokio::spawn(feed_watchdog(watchdog_interval(timeout), is_alive, ping));
}

async fn feed_watchdog<F: Future<Output = bool>>(
    interval: Duration,
    is_alive: impl Fn() -> F,
    ping: impl Fn(),
) {
    let mut ticks = tokio::time::interval(interval);
    loop {
        ticks.tick().await;
        if is_alive().await {
            ping();
        } else {
            tracing::error!("the liveness check failed, systemd will restart this service");
        }
    }
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::liveness::Liveness;

    #[tokio::test(start_paused = true)]
    async fn a_stuck_loop_stops_the_ping() {
        const LIMIT: Duration = Duration::from_secs(600);
        let (liveness, pings) = (Liveness::default(), Arc::new(AtomicUsize::new(0)));
        let (alive, count) = (liveness.clone(), Arc::clone(&pings));
        tokio::spawn(feed_watchdog(
            Duration::from_secs(30),
            move || std::future::ready(alive.is_alive()),
            move || {
                count.fetch_add(1, Ordering::Relaxed);
            },
        ));
        // A loop that waits for ever, in a pass that it began.
        let pass = liveness.begin("test", LIMIT);
        tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
        assert_eq!(pings.load(Ordering::Relaxed), 20, "it is still in time");
        tokio::time::sleep(LIMIT * 10).await;
        assert_eq!(pings.load(Ordering::Relaxed), 20, "it is stuck");
        drop(pass);
        tokio::time::sleep(LIMIT * 10).await;
        assert!(pings.load(Ordering::Relaxed) >= 200, "it waits for something to happen");
    }

    #[test]
    fn the_watchdog_is_fed_twice_per_timeout() {
        assert_eq!(watchdog_interval(Duration::from_secs(60)), Duration::from_secs(30));
        assert_eq!(watchdog_interval(Duration::ZERO), Duration::from_millis(1));
    }
}
