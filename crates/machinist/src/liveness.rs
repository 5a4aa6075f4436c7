//! Whether the loops of a process make progress, for systemd's watchdog.
//!
//! A loop that waits for something to happen is alive, however long it waits. A pass of it that takes longer than its limit
//! is stuck: the process then stops feeding the watchdog, and systemd restarts it. This module knows no loop: the
//! controller, the daemon and the server report their passes, and the commands ask before each message to systemd.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The passes of a process that are running. A clone shares them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Liveness {
    running: Arc<Mutex<RunningPasses>>,
}

#[derive(Debug, Default)]
struct RunningPasses {
    next_id: u64,
    by_id: BTreeMap<u64, PassDeadline>,
}

#[derive(Debug)]
struct PassDeadline {
    /// The loop.
    name: &'static str,
    at: Instant,
}

/// A pass, until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningPass {
    liveness: Liveness,
    id: u64,
}

impl Liveness {
    /// Begins a pass of a loop. If it is not dropped before the limit, the loop counts as stuck.
    pub(crate) fn begin(&self, name: &'static str, limit: Duration) -> RunningPass {
        let mut running = self.running.lock();
        let id = running.next_id;
        running.next_id += 1;
        running.by_id.insert(id, PassDeadline { name, at: Instant::now() + limit });
        RunningPass { liveness: self.clone(), id }
    }

    /// Whether no loop is stuck. Those that are get logged.
    pub(crate) fn is_alive(&self) -> bool {
        let stuck = self.stuck();
        if let Some(name) = stuck {
            tracing::error!(name, "a loop of this process is stuck");
        }
        stuck.is_none()
    }

    /// A loop that is stuck, if there is one.
    fn stuck(&self) -> Option<&'static str> {
        let now = Instant::now();
        let running = self.running.lock();
        running.by_id.values().find(|deadline| deadline.at <= now).map(|deadline| deadline.name)
    }
}

impl RunningPass {
    /// Gives the pass another limit, which begins now: it has made progress.
    pub(crate) fn extend(&self, limit: Duration) {
        if let Some(deadline) = self.liveness.running.lock().by_id.get_mut(&self.id) {
            deadline.at = Instant::now() + limit;
        }
    }
}

impl Drop for RunningPass {
    fn drop(&mut self) {
        self.liveness.running.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_takes_too_long_is_stuck_and_a_loop_that_waits_is_not() {
        let liveness = Liveness::default();
        tokio::time::advance(LIMIT * 100).await;
        assert!(liveness.is_alive(), "nothing is running");
        let (one, two) = (liveness.begin("one", LIMIT), liveness.begin("two", LIMIT * 2));
        tokio::time::advance(LIMIT).await;
        assert_eq!(liveness.stuck(), Some("one"));
        drop(one);
        assert!(liveness.is_alive());
        two.extend(LIMIT * 2);
        tokio::time::advance(LIMIT).await;
        assert!(liveness.is_alive(), "it has made progress");
        tokio::time::advance(LIMIT).await;
        assert_eq!(liveness.stuck(), Some("two"));
        drop(two);
        assert!(liveness.is_alive(), "a pass that ends late is over");
    }
}
