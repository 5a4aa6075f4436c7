//! The failures that persist right now, each logged once.
//!
//! A loop that retries every second must neither hide a failure nor fill the log with it. It reports every attempt here:
//! the first failure and every new cause of it become one `warn`, the recovery one `info`, repetitions nothing. The current
//! failures are the text of `/readyz`.
//!
//! The one throttling helper of all processes. It knows neither objects nor the store, and it is in this crate because the
//! hub and every other process use it. A process has one log; `machinist up` shares one between the hub, the controller
//! and the machine config server.

mod logged_causes;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use logged_causes::LoggedCauses;

/// After so many failures in a row a failure counts as persistent, and goes into conditions and events. An API server that
/// restarts causes fewer.
const PERSISTENT_AFTER: u32 = 3;

/// The part of the process, what is done, and to which object; the object is empty where there is none.
type TaskKey = (u32, &'static str, String);

/// A failure that nobody has reported for so long is over: its object is gone, or the task needs no retry any more.
const EXPIRES_AFTER: Duration = Duration::from_secs(600);

#[derive(Debug)]
struct Failure {
    error: String,
    logged: LoggedCauses,
    /// How often in a row the task failed. A change of the text does not make a failure younger.
    attempts: u32,
    reported_at: Instant,
    is_lasting: bool,
}

/// What a failed attempt means to whoever reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureState {
    /// It may be over with the next attempt.
    Recent,
    /// This attempt made it persistent: the time for an event.
    BecamePersistent,
    /// It has been persistent before this attempt.
    Persistent,
}

impl FailureState {
    /// Whether the failure belongs into a condition.
    pub fn is_persistent(self) -> bool {
        self != Self::Recent
    }
}

/// The current failures of a process. A clone shares them.
#[derive(Debug, Clone, Default)]
pub struct FailureLog {
    inner: Arc<SharedFailures>,
    /// The part of the process that reports here.
    part: u32,
    /// Whether failures stay until their recovery, however seldom they are reported.
    is_lasting: bool,
}

#[derive(Debug, Default)]
struct SharedFailures {
    failures: Mutex<BTreeMap<TaskKey, Failure>>,
    parts: AtomicU32,
    /// The address of the API server of the process.
    server: OnceLock<String>,
}

impl FailureLog {
    /// The same log for another part of the process: what it clears are only its own failures.
    #[must_use]
    pub fn for_part(&self) -> Self {
        let part = self.inner.parts.fetch_add(1, Ordering::Relaxed) + 1;
        Self { part, ..self.clone() }
    }

    /// The same log, whose lines name this API server: the first that is given counts.
    #[must_use]
    pub fn of_server(self, address: &str) -> Self {
        if !address.is_empty() {
            self.inner.server.get_or_init(|| address.to_owned());
        }
        self
    }

    /// The same log for tasks that are seldom tried: their failures do not expire. The objects of such tasks are few.
    #[must_use]
    pub fn lasting(&self) -> Self {
        Self { is_lasting: true, ..self.clone() }
    }

    /// Reports a failed attempt. `task` is a verb phrase such as "write the pool status"; `object` names what it is about.
    pub fn failed(&self, task: &'static str, object: &str, error: &str) -> FailureState {
        let now = Instant::now();
        let mut failures = self.inner.failures.lock();
        expire(&mut failures, now);
        let failure =
            failures.entry((self.part, task, object.to_owned())).or_insert_with(|| Failure {
                error: String::new(),
                logged: LoggedCauses::default(),
                attempts: 0,
                reported_at: now,
                is_lasting: self.is_lasting,
            });
        let is_new = failure.error != error && failure.logged.is_due(error, now);
        error.clone_into(&mut failure.error);
        failure.attempts = failure.attempts.saturating_add(1);
        failure.reported_at = now;
        let state = match failure.attempts {
            attempts if attempts < PERSISTENT_AFTER => FailureState::Recent,
            PERSISTENT_AFTER => FailureState::BecamePersistent,
            _ => FailureState::Persistent,
        };
        if is_new {
            let server = self.inner.server.get();
            tracing::warn!(task, object, error, server, "a task fails and is retried");
        }
        state
    }

    /// Reports a successful attempt.
    pub fn succeeded(&self, task: &'static str, object: &str) {
        let mut failures = self.inner.failures.lock();
        if failures.is_empty() {
            return;
        }
        if failures.remove(&(self.part, task, object.to_owned())).is_some() {
            tracing::info!(task, object, "a task works again");
        }
    }

    /// Forgets a task that nobody tries any more, whether it failed or not.
    pub fn forget(&self, task: &'static str, object: &str) {
        self.inner.failures.lock().remove(&(self.part, task, object.to_owned()));
    }

    /// Reports an attempt, and returns what it yielded if it succeeded.
    pub fn record<T, E: Display>(
        &self,
        task: &'static str,
        object: &str,
        attempt: Result<T, E>,
    ) -> Option<T> {
        match attempt {
            Ok(value) => {
                self.succeeded(task, object);
                Some(value)
            }
            Err(error) => {
                // The alternate form has the causes of an error, too.
                self.failed(task, object, &format!("{error:#}"));
                None
            }
        }
    }

    /// Forgets everything that this part reported: the tasks that could report a recovery have ended.
    pub fn clear(&self) {
        self.inner.failures.lock().retain(|(part, ..), _| *part != self.part);
    }

    /// One line for each current failure of the process.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut failures = self.inner.failures.lock();
        expire(&mut failures, Instant::now());
        let line = |((_, task, object), failure): (&TaskKey, &Failure)| match object.as_str() {
            "" => format!("{task}: {}", failure.error),
            object => format!("{task} ({object}): {}", failure.error),
        };
        failures.iter().map(line).collect()
    }
}

/// Drops the failures that nobody has reported lately.
fn expire(failures: &mut BTreeMap<TaskKey, Failure>, now: Instant) {
    failures.retain(|_, failure| {
        failure.is_lasting || now.duration_since(failure.reported_at) < EXPIRES_AFTER
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_listed_until_its_recovery() {
        let log = FailureLog::default();
        log.failed("list nodes", "", "forbidden");
        log.failed("list nodes", "", "no response");
        assert_eq!(log.lines(), ["list nodes: no response"]);
        log.succeeded("list nodes", "");
        log.succeeded("list nodes", "");
        assert!(log.lines().is_empty());
    }

    /// The lines that a thread logs while it runs `action`.
    fn logged(action: impl FnOnce()) -> String {
        #[derive(Clone, Default)]
        struct Lines(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        tracing::subscriber::with_default(subscriber.finish(), action);
        let bytes = lines.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_failure_is_logged_once_per_cause() {
        let log = FailureLog::default();
        let text = logged(|| {
            let causes = ["forbidden", "forbidden", "no response", "no response", "forbidden"];
            for error in causes {
                log.failed("list nodes", "a", error);
            }
            log.succeeded("list nodes", "a");
            log.succeeded("list nodes", "a");
        });
        assert_eq!(text.matches("WARN").count(), 2, "{text}");
        assert_eq!(text.matches("a task works again").count(), 1, "{text}");
    }

    #[test]
    fn an_attempt_is_recorded_with_the_causes_of_its_error() {
        let log = FailureLog::default();
        assert_eq!(log.record("try", "", Ok::<_, std::fmt::Error>(1)), Some(1));
        assert_eq!(log.record("try", "", Err::<u8, _>(std::io::Error::other("x"))), None);
        assert_eq!(log.lines(), ["try: x"]);
        log.record("try", "", Ok::<_, std::fmt::Error>(1));
        assert!(log.lines().is_empty());
    }

    #[test]
    fn a_part_clears_only_its_own_failures() {
        let log = FailureLog::default();
        let (one, two) = (log.for_part(), log.for_part());
        one.failed("write", "", "a");
        two.failed("write", "", "b");
        assert_eq!(log.lines(), ["write: a", "write: b"]);
        log.clear();
        one.clear();
        assert_eq!(log.lines(), ["write: b"]);
    }

    #[test]
    fn a_failure_that_is_no_longer_reported_expires() {
        let mut failures = BTreeMap::new();
        let reported_at = Instant::now();
        for (object, is_lasting) in [("gone", false), ("lasting", true)] {
            let logged = LoggedCauses::default();
            let error = "x".to_owned();
            let failure = Failure { error, logged, attempts: 1, reported_at, is_lasting };
            failures.insert((0, "drain", object.to_owned()), failure);
        }
        expire(&mut failures, reported_at + EXPIRES_AFTER / 2);
        assert_eq!(failures.len(), 2);
        expire(&mut failures, reported_at + EXPIRES_AFTER);
        let left: Vec<_> = failures.keys().map(|(_, _, object)| object.as_str()).collect();
        assert_eq!(left, ["lasting"]);
    }

    #[test]
    fn objects_fail_one_by_one() {
        let log = FailureLog::default();
        log.failed("write the pool status", "worker", "a");
        log.failed("write the pool status", "master", "b");
        log.succeeded("write the pool status", "worker");
        assert_eq!(log.lines(), ["write the pool status (master): b"]);
        log.clear();
        assert!(log.lines().is_empty());
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
