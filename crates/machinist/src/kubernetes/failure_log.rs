//! The failures that persist right now, each logged once.
//!
//! A loop that retries every second must neither hide a failure nor fill the log with it. It reports every attempt here:
//! the first failure and every change of its text become one `warn`, the recovery one `info`, repetitions nothing. The
//! current failures are the text of `/readyz`. Used by every loop of the controller and the operator, by leases and by
//! caches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::connect::server_address;

/// After so many failures in a row a failure counts as persistent, and goes into conditions and events. An API server that
/// restarts causes fewer.
const PERSISTENT_AFTER: u32 = 3;

/// What is done, and to which object; the object is empty where there is none.
type TaskKey = (&'static str, String);

/// A failure that nobody has reported for so long is over: its object is gone, or the task needs no retry any more.
const EXPIRES_AFTER: Duration = Duration::from_secs(600);

#[derive(Debug)]
struct Failure {
    error: String,
    /// How often in a row the task failed. A change of the text does not make a failure younger.
    attempts: u32,
    reported_at: Instant,
}

/// What a failed attempt means to whoever reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureState {
    /// It may be over with the next attempt.
    Recent,
    /// This attempt made it persistent: the time for an event.
    BecamePersistent,
    /// It has been persistent before this attempt.
    Persistent,
}

impl FailureState {
    /// Whether the failure belongs into a condition.
    pub(crate) fn is_persistent(self) -> bool {
        self != Self::Recent
    }
}

/// The current failures of a process. A clone shares them.
#[derive(Debug, Clone, Default)]
pub(crate) struct FailureLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    failures: Mutex<BTreeMap<TaskKey, Failure>>,
    lines: watch::Sender<Vec<String>>,
}

impl Default for Inner {
    fn default() -> Self {
        Self { failures: Mutex::default(), lines: watch::Sender::new(Vec::new()) }
    }
}

impl FailureLog {
    /// Reports a failed attempt. `task` is a verb phrase such as "write the pool status"; `object` names what it is about.
    pub(crate) fn failed(&self, task: &'static str, object: &str, error: &str) -> FailureState {
        let now = Instant::now();
        let mut failures = self.inner.failures.lock();
        let has_expired = expire(&mut failures, now);
        let failure = failures.entry((task, object.to_owned())).or_insert_with(|| Failure {
            error: String::new(),
            attempts: 0,
            reported_at: now,
        });
        let is_new = failure.error != error;
        if is_new {
            error.clone_into(&mut failure.error);
        }
        failure.attempts = failure.attempts.saturating_add(1);
        failure.reported_at = now;
        let state = match failure.attempts {
            attempts if attempts < PERSISTENT_AFTER => FailureState::Recent,
            PERSISTENT_AFTER => FailureState::BecamePersistent,
            _ => FailureState::Persistent,
        };
        if is_new {
            let server = server_address();
            tracing::warn!(task, object, error, server, "a task fails and is retried");
        }
        if is_new || has_expired {
            self.publish(&failures);
        }
        state
    }

    /// Reports a successful attempt.
    pub(crate) fn succeeded(&self, task: &'static str, object: &str) {
        let mut failures = self.inner.failures.lock();
        if failures.is_empty() {
            return;
        }
        let has_expired = expire(&mut failures, Instant::now());
        let has_recovered = failures.remove(&(task, object.to_owned())).is_some();
        if has_recovered {
            tracing::info!(task, object, "a task works again");
        }
        if has_recovered || has_expired {
            self.publish(&failures);
        }
    }

    /// Forgets everything: the tasks that could report a recovery have ended.
    pub(crate) fn clear(&self) {
        let mut failures = self.inner.failures.lock();
        failures.clear();
        self.publish(&failures);
    }

    /// One line for each current failure, and a wake-up whenever they change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Vec<String>> {
        self.inner.lines.subscribe()
    }

    fn publish(&self, failures: &BTreeMap<TaskKey, Failure>) {
        let line = |((task, object), failure): (&TaskKey, &Failure)| match object.as_str() {
            "" => format!("{task}: {}", failure.error),
            object => format!("{task} ({object}): {}", failure.error),
        };
        self.inner.lines.send_replace(failures.iter().map(line).collect());
    }
}

/// Drops the failures that nobody has reported lately. Returns whether there were any.
fn expire(failures: &mut BTreeMap<TaskKey, Failure>, now: Instant) -> bool {
    let before = failures.len();
    failures.retain(|_, failure| now.duration_since(failure.reported_at) < EXPIRES_AFTER);
    failures.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(log: &FailureLog) -> Vec<String> {
        log.subscribe().borrow().clone()
    }

    #[test]
    fn a_failure_is_published_once_per_change_and_goes_with_its_recovery() {
        let log = FailureLog::default();
        let mut changes = log.subscribe();
        let mut has_changed = || {
            let changed = changes.has_changed().unwrap();
            changes.mark_unchanged();
            changed
        };
        log.failed("list nodes", "", "forbidden");
        assert!(has_changed());
        log.failed("list nodes", "", "forbidden");
        assert!(!has_changed(), "the same failure is no change");
        log.failed("list nodes", "", "no response");
        assert!(has_changed());
        assert_eq!(lines(&log), ["list nodes: no response"]);
        log.succeeded("list nodes", "");
        assert!(has_changed());
        assert!(lines(&log).is_empty());
        log.succeeded("list nodes", "");
        assert!(!has_changed(), "a success after a success is no change");
    }

    #[test]
    fn a_failure_that_is_no_longer_reported_expires() {
        let mut failures = BTreeMap::new();
        let reported_at = Instant::now();
        let failure = Failure { error: "x".to_owned(), attempts: 1, reported_at };
        failures.insert(("drain", "gone".to_owned()), failure);
        assert!(!expire(&mut failures, reported_at + EXPIRES_AFTER / 2));
        assert!(expire(&mut failures, reported_at + EXPIRES_AFTER));
        assert!(failures.is_empty());
    }

    #[test]
    fn objects_fail_one_by_one() {
        let log = FailureLog::default();
        log.failed("write the pool status", "worker", "a");
        log.failed("write the pool status", "master", "b");
        log.succeeded("write the pool status", "worker");
        assert_eq!(lines(&log), ["write the pool status (master): b"]);
        log.clear();
        assert!(lines(&log).is_empty());
    }

    #[test]
    fn a_failure_becomes_persistent_once_whatever_its_text() {
        let log = FailureLog::default();
        let states: Vec<_> = (0..4).map(|_| log.failed("a", "", "x")).collect();
        let expected = [
            FailureState::Recent,
            FailureState::Recent,
            FailureState::BecamePersistent,
            FailureState::Persistent,
        ];
        assert_eq!(states, expected);
        assert_eq!(log.failed("a", "", "y"), FailureState::Persistent);
        assert!(!FailureState::Recent.is_persistent());
        assert!(FailureState::BecamePersistent.is_persistent());
    }
}
