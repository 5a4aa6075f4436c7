//! When a loop takes its next pass: after a change, when the burst that it belongs to is over.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Waits for changes from many sides.
#[derive(Debug)]
pub(super) struct Debounce {
    sender: mpsc::Sender<()>,
    receiver: mpsc::Receiver<()>,
    debounce: Duration,
    max_wait: Duration,
    /// When the burst that has begun is answered at the latest.
    deadline: Option<Instant>,
}

impl Debounce {
    /// Changes that follow one another within `quiet` are one burst; but a turn comes after `patience` at the latest.
    #[must_use]
    pub(super) fn new(quiet: Duration, patience: Duration) -> Self {
        // One place is enough: that something changed needs to be known only once.
        let (sender, receiver) = mpsc::channel(1);
        Self { sender, receiver, debounce: quiet, max_wait: patience, deadline: None }
    }

    /// From now on a turn comes after `patience` at the latest.
    pub(super) fn set_max_wait(&mut self, patience: Duration) {
        self.max_wait = patience;
    }

    /// A turn is to come after a change of this, too.
    pub(super) fn watch<T: Send + Sync + 'static>(&self, mut changes: watch::Receiver<T>) {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                }
                // Full: the turn comes anyway.
                let _ = sender.try_send(());
            }
        });
    }

    /// Waits for the next pass: after a change, or after `at_latest`. Whoever gives up waiting misses nothing: the next call
    /// goes on with the burst that this one had begun to wait for.
    pub(super) async fn next(&mut self, at_latest: Option<Duration>) {
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

    #[tokio::test(start_paused = true)]
    async fn a_burst_gives_one_turn_and_a_long_one_does_not_wait_for_ever() {
        let changes = watch::Sender::new(0);
        let mut debounce = Debounce::new(Duration::from_millis(100), Duration::from_millis(500));
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
        let quiet = debounce.next(Some(Duration::from_secs(60)));
        assert!(timeout(Duration::from_secs(50), quiet).await.is_err());
        drop(changes);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_gives_up_waiting_misses_nothing_and_is_not_put_off_for_ever() {
        let changes = watch::Sender::new(0);
        let mut debounce = Debounce::new(Duration::from_millis(100), Duration::from_millis(500));
        debounce.watch(changes.subscribe());
        changes.send_replace(1);
        let start = Instant::now();
        // Something else is always quicker than the burst is over.
        while timeout(Duration::from_millis(50), debounce.next(None)).await.is_err() {
            assert!(start.elapsed() <= Duration::from_millis(600), "the turn was forgotten");
        }
        assert!(start.elapsed() >= Duration::from_millis(100));
        let nothing = timeout(Duration::from_secs(60), debounce.next(None)).await;
        assert!(nothing.is_err(), "one change, one turn");
    }
}
