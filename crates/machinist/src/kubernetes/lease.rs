//! Leader election: of several processes only the holder of the Lease acts.
//!
//! Clocks of different machines are never compared. A Lease counts as abandoned when *we* have seen no change of it for as
//! long as it is valid, by our own monotonic clock. A leader that cannot renew in time stops acting before another process
//! may start, and every write first asks [`Leadership::is_leading`]. Used by the controller and the operator.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use machinist_hub::failure_log::FailureLog;
use tokio::sync::watch;

use super::error_text::error_text;

/// The task under which failures are reported.
const TASK: &str = "hold the Lease";

/// How a process takes part in the election.
#[derive(Debug, Clone)]
pub struct ElectionConfig {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The identity of this process; it has to be unique.
    pub identity: String,
    /// How long a Lease is valid without being renewed.
    pub duration: Duration,
    /// How long a leader acts without having renewed; shorter than `duration`.
    pub renew_deadline: Duration,
    /// How often to try.
    pub retry_period: Duration,
}

/// A Lease, and since when it has not changed.
#[derive(Debug, Clone)]
struct ObservedLease {
    spec: LeaseSpec,
    since: Instant,
}

/// The right to act while we hold the Lease. A clone shares it.
#[derive(Debug, Clone)]
pub(crate) struct Leadership {
    /// Until when we hold it.
    until: Arc<watch::Sender<Instant>>,
}

impl Leadership {
    fn with_deadline(instant: Instant) -> Self {
        Self { until: Arc::new(watch::Sender::new(instant)) }
    }

    /// Whether we may act.
    #[must_use]
    pub(crate) fn is_leading(&self) -> bool {
        Instant::now() < *self.until.borrow()
    }

    /// Waits until we may act no longer.
    pub(crate) async fn wait_until_lost(&self) {
        loop {
            let until = *self.until.borrow();
            if Instant::now() >= until {
                return;
            }
            tokio::time::sleep_until(until.into()).await;
        }
    }

    fn extend(&self, until: Instant) {
        self.until.send_replace(until);
    }
}

/// Whether we may take a Lease: it is ours, free, or was not renewed for as long as it is valid.
fn can_acquire(seen: &ObservedLease, identity: &str, now: Instant) -> bool {
    let holder = seen.spec.holder_identity.as_deref().unwrap_or_default();
    let seconds = seen.spec.lease_duration_seconds.unwrap_or_default();
    let valid = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    holder.is_empty() || holder == identity || now.duration_since(seen.since) > valid
}

/// The spec of a Lease that we take or renew.
fn renewed_spec(old: &LeaseSpec, election: &ElectionConfig, now: Timestamp) -> LeaseSpec {
    let is_ours = old.holder_identity.as_ref() == Some(&election.identity);
    let transitions = old.lease_transitions.unwrap_or_default();
    LeaseSpec {
        holder_identity: Some(election.identity.clone()),
        lease_duration_seconds: i32::try_from(election.duration.as_secs().max(1)).ok(),
        acquire_time: if is_ours { old.acquire_time.clone() } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if is_ours { transitions } else { transitions + 1 }),
        ..LeaseSpec::default()
    }
}

/// Acquires the Lease and renews it.
#[derive(Debug)]
pub(crate) struct Elector {
    api: Api<Lease>,
    lease: &'static str,
    election: ElectionConfig,
    seen: Option<ObservedLease>,
    failures: FailureLog,
}

impl Elector {
    /// Prepares an election for the Lease of this name. Sends no request yet.
    #[must_use]
    pub(crate) fn new(
        lease: &'static str,
        client: Client,
        election: ElectionConfig,
        failures: FailureLog,
    ) -> Self {
        let api = Api::namespaced(client, &election.namespace);
        Self { api, lease, election, seen: None, failures }
    }

    /// Waits until we lead.
    pub(crate) async fn acquire(&mut self) -> Leadership {
        let mut reported = String::new();
        loop {
            let start = Instant::now();
            match self.attempt().await {
                Some(true) => {
                    return Leadership::with_deadline(start + self.election.renew_deadline);
                }
                Some(false) => {
                    let holder = self.holder();
                    if reported != holder {
                        tracing::info!(holder, "another process leads; standing by");
                        reported = holder;
                    }
                }
                None => {}
            }
            tokio::time::sleep(self.election.retry_period).await;
        }
    }

    /// Renews until another process holds the Lease, or we could not renew in time.
    pub(crate) async fn renew_until_lost(&mut self, lead: &Leadership) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.election.retry_period) => {}
                () = lead.wait_until_lost() => return,
            }
            let start = Instant::now();
            match self.attempt().await {
                Some(true) => lead.extend(start + self.election.renew_deadline),
                Some(false) => {
                    lead.extend(start);
                    return;
                }
                None => {}
            }
        }
    }

    /// One attempt to take or renew the Lease: whether it is ours now, or nothing if that is not known.
    async fn attempt(&mut self) -> Option<bool> {
        let deadline = self.election.renew_deadline;
        let attempt = tokio::time::timeout(deadline, self.try_acquire_or_renew()).await;
        let error = match attempt {
            Ok(Ok(is_ours)) => {
                self.failures.succeeded(TASK, self.lease);
                return Some(is_ours);
            }
            Ok(Err(error)) => error_text(&error),
            Err(_) => format!("no response in {deadline:?}"),
        };
        self.failures.failed(TASK, self.lease, &error);
        None
    }

    /// Gives the Lease back, so that the next leader need not wait until it expires.
    pub(crate) async fn release(&mut self) {
        let Ok(lease) = self.api.get(self.lease).await else { return };
        let mut lease = lease;
        let Some(spec) = &mut lease.spec else { return };
        if spec.holder_identity.as_ref() != Some(&self.election.identity) {
            return;
        }
        spec.holder_identity = None;
        spec.lease_duration_seconds = Some(1);
        if let Err(error) = self.api.replace(self.lease, &PostParams::default(), &lease).await {
            tracing::warn!(
                lease = self.lease,
                error = error_text(&error),
                "cannot release the Lease"
            );
        }
    }

    fn holder(&self) -> String {
        let seen = self.seen.as_ref();
        seen.and_then(|seen| seen.spec.holder_identity.clone()).unwrap_or_default()
    }

    async fn try_acquire_or_renew(&mut self) -> kube::Result<bool> {
        let now = Timestamp::now();
        let Some(lease) = self.api.get_opt(self.lease).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.lease.to_owned()), ..ObjectMeta::default() },
                spec: Some(renewed_spec(&LeaseSpec::default(), &self.election, now)),
            };
            return accepted(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let seen = match self.seen.take() {
            Some(seen) if seen.spec == spec => seen,
            _ => ObservedLease { spec: spec.clone(), since: Instant::now() },
        };
        let is_available = can_acquire(&seen, &self.election.identity, Instant::now());
        self.seen = Some(seen);
        if !is_available {
            return Ok(false);
        }
        let mut lease = lease;
        lease.spec = Some(renewed_spec(&spec, &self.election, now));
        accepted(self.api.replace(self.lease, &PostParams::default(), &lease).await)
    }
}

/// A conflict means that another process was quicker.
fn accepted(written: kube::Result<Lease>) -> kube::Result<bool> {
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn election() -> ElectionConfig {
        ElectionConfig {
            namespace: "n".to_owned(),
            identity: "me".to_owned(),
            duration: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(8),
            retry_period: Duration::from_secs(2),
        }
    }

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(10),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_taken_only_if_it_is_free_ours_or_abandoned() {
        let since = Instant::now();
        let later = |seconds| since + Duration::from_secs(seconds);
        let seen = |holder| ObservedLease { spec: held_by(holder), since };
        assert!(can_acquire(&seen(""), "me", later(0)));
        assert!(can_acquire(&seen("me"), "me", later(0)));
        assert!(!can_acquire(&seen("other"), "me", later(10)));
        assert!(can_acquire(&seen("other"), "me", later(11)));
    }

    #[test]
    fn taking_over_counts_as_a_transition_and_renewing_does_not() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(renewed_spec(&held_by("other"), &election(), now).lease_transitions, Some(4));
        assert_eq!(renewed_spec(&held_by("me"), &election(), now).lease_transitions, Some(3));
    }

    #[test]
    fn leadership_ends_by_itself() {
        let lead = Leadership::with_deadline(Instant::now() + Duration::from_secs(60));
        assert!(lead.is_leading());
        lead.extend(Instant::now());
        assert!(!lead.is_leading());
    }
}
