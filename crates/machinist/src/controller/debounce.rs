//! Collapses bursts of changes into one pass of a loop, and reports the pass to the process's [`Liveness`].

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::liveness::{Liveness, RunningPass};

/// After this long a pass is stuck. Writes have timeouts, so even a pass over thousands of machines with an API server
/// that does not respond is over earlier.
const PASS_LIMIT: Duration = Duration::from_secs(1800);

/// Waits for changes of several sources.
#[derive(Debug)]
pub(super) struct Debounce {
    sender: mpsc::Sender<()>,
    receiver: mpsc::Receiver<()>,
    debounce: Duration,
    max_wait: Duration,
    /// When the current burst ends at the latest.
    deadline: Option<Instant>,
    /// The loop, and whose loop it is.
    loop_name: &'static str,
    liveness: Liveness,
    /// The pass that began when the last wait was over.
    pass: Option<RunningPass>,
}

impl Debounce {
    /// A burst ends when there was no change for `debounce`, and after `max_wait` at the latest.
    #[must_use]
    pub(super) fn new(
        loop_name: &'static str,
        liveness: &Liveness,
        debounce: Duration,
        max_wait: Duration,
    ) -> Self {
        // One slot is enough: it only matters that something changed.
        let (sender, receiver) = mpsc::channel(1);
        let (liveness, pass) = (liveness.clone(), None);
        Self { sender, receiver, debounce, max_wait, deadline: None, loop_name, liveness, pass }
    }

    /// Sets how long a burst may last.
    pub(super) fn set_max_wait(&mut self, max_wait: Duration) {
        self.max_wait = max_wait;
    }

    /// Adds a source of changes.
    pub(super) fn watch<T: Send + Sync + 'static>(&self, mut changes: watch::Receiver<T>) {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                }
                // If the slot is full, the pass is pending already.
                let _ = sender.try_send(());
            }
        });
    }

    /// Waits for the end of the next burst, or for `at_latest`. A pass begins then, which lasts until the next call.
    /// Cancel-safe: the next call continues with the burst that a cancelled one was waiting for.
    pub(super) async fn next(&mut self, at_latest: Option<Duration>) {
        self.pass = None;
        self.wait(at_latest).await;
        self.pass = Some(self.liveness.begin(self.loop_name, PASS_LIMIT));
    }

    async fn wait(&mut self, at_latest: Option<Duration>) {
        let end = match self.deadline {
            Some(end) => end,
            None => {
                match at_latest {
                    Some(limit) => {
                        if timeout(limit, self.receiver.recv()).await.is_err() {
                            return;
                        }
                    }
                    None => {
                        self.receiver.recv().await;
                    }
                }
                *self.deadline.insert(Instant::now() + self.max_wait)
            }
        };
        loop {
            sleep(self.debounce.min(end.saturating_duration_since(Instant::now()))).await;
            let is_over = Instant::now() >= end;
            if is_over || timeout_at(Instant::now(), self.receiver.recv()).await.is_err() {
                self.deadline = None;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debounce(liveness: &Liveness) -> Debounce {
        Debounce::new("test", liveness, Duration::from_millis(100), Duration::from_millis(500))
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_never_ends_is_stuck_and_a_wait_that_never_ends_is_not() {
        let (changes, liveness) = (watch::Sender::new(0), Liveness::default());
        let mut debounce = debounce(&liveness);
        debounce.watch(changes.subscribe());
        let waited = timeout(PASS_LIMIT * 2, debounce.next(None)).await;
        assert!(waited.is_err() && liveness.is_alive());
        changes.send_replace(1);
        debounce.next(None).await;
        // The pass that begins now awaits something that never comes.
        sleep(PASS_LIMIT / 2).await;
        assert!(liveness.is_alive());
        sleep(PASS_LIMIT / 2).await;
        assert!(!liveness.is_alive());
        let _ = timeout(Duration::from_secs(1), debounce.next(None)).await;
        assert!(liveness.is_alive());
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_gives_one_pass_and_a_long_one_is_cut() {
        let changes = watch::Sender::new(0);
        let mut debounce = debounce(&Liveness::default());
        debounce.watch(changes.subscribe());
        let writer = tokio::spawn(async move {
            for n in 1..100 {
                changes.send_replace(n);
                sleep(Duration::from_millis(50)).await;
            }
            changes
        });
        let start = Instant::now();
        debounce.next(None).await;
        assert!(start.elapsed() <= Duration::from_millis(700), "{:?}", start.elapsed());
        let changes = writer.await.unwrap();
        debounce.next(None).await;
        let unchanged = debounce.next(Some(Duration::from_secs(60)));
        assert!(timeout(Duration::from_secs(50), unchanged).await.is_err());
        drop(changes);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_wait_loses_no_change_and_does_not_extend_the_burst() {
        let changes = watch::Sender::new(0);
        let mut debounce = debounce(&Liveness::default());
        debounce.watch(changes.subscribe());
        changes.send_replace(1);
        let start = Instant::now();
        // Something else always ends the wait before the burst is over.
        while timeout(Duration::from_millis(50), debounce.next(None)).await.is_err() {
            assert!(start.elapsed() <= Duration::from_millis(600), "the pass was lost");
        }
        assert!(start.elapsed() >= Duration::from_millis(100));
        let nothing = timeout(Duration::from_secs(60), debounce.next(None)).await;
        assert!(nothing.is_err(), "one change, one pass");
    }
}
