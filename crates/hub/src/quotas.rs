//! Quotas of machines and bootstrap tokens: writes a second, and how many Events and CSRs each holds.
//!
//! Administrators and controllers are not limited. Called by the router before a write. The
//! decisions are pure ([`TokenBucket`], [`held_limit`]); [`Quotas`] holds what they need in memory. A
//! restart forgets who created an Event, so there is also a limit on all of them.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::auth::{BOOTSTRAP_GROUP, UserInfo};
use crate::kind_registry::ResourceKind;
use crate::object;
use crate::status::ApiError;
use crate::store::Store;

/// Idle identities are forgotten when there are more than this.
const MAX_IDENTITIES: usize = 10_000;
/// How long a count of all objects of a kind is used.
const TOTAL_LIFETIME: Duration = Duration::from_secs(1);
/// Advice to a client that holds too many objects: they expire.
const HELD_RETRY_SECONDS: u32 = 60;
/// A write of this size counts as one. A Node with a long status has half of it.
const BYTES_PER_WRITE: usize = 64 << 10;

/// How fast an identity may write. Refused writes count, too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WriteRate {
    /// In the long run.
    pub per_second: f64,
    /// At once.
    pub burst: f64,
}

/// The rates of those that are limited.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WriteRates {
    /// One machine or viewer. A daemon makes a few writes a minute.
    pub machine: WriteRate,
    /// One bootstrap token, which all machines of a site may share.
    pub bootstrap: WriteRate,
}

impl Default for WriteRates {
    fn default() -> Self {
        Self {
            machine: WriteRate { per_second: 20.0, burst: 200.0 },
            bootstrap: WriteRate { per_second: 50.0, burst: 500.0 },
        }
    }
}

impl WriteRates {
    /// The rate of an identity; `None` if it is not limited.
    fn of(&self, user: &UserInfo) -> Option<WriteRate> {
        if user.is_privileged() {
            None
        } else if user.is_in_group(BOOTSTRAP_GROUP) {
            Some(self.bootstrap)
        } else {
            Some(self.machine)
        }
    }
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
struct TokenBucket {
    tokens: f64,
    /// Seconds since the quotas were created.
    updated: f64,
}

impl TokenBucket {
    fn full(rate: WriteRate, now: f64) -> Self {
        Self { tokens: rate.burst, updated: now }
    }

    /// Takes tokens, or says after how many seconds there are enough. A cost above the burst empties a full bucket.
    fn take(&mut self, rate: WriteRate, now: f64, cost: f64) -> Result<(), f64> {
        let cost = cost.min(rate.burst);
        let refill = (now - self.updated).max(0.0) * rate.per_second;
        self.tokens = (self.tokens + refill).min(rate.burst);
        self.updated = now;
        if self.tokens >= cost {
            self.tokens -= cost;
            return Ok(());
        }
        Err((cost - self.tokens) / rate.per_second)
    }

    fn is_idle(&self, rate: WriteRate, now: f64) -> bool {
        self.tokens + (now - self.updated) * rate.per_second >= rate.burst
    }
}

/// How many objects of a kind may be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeldLimit {
    /// By one identity.
    each: usize,
    /// By all of them.
    total: usize,
}

/// The limit of a kind that a machine or a token creates without a bound on the names.
fn held_limit(kind: &ResourceKind, user: &UserInfo) -> Option<HeldLimit> {
    match kind.kind.as_str() {
        _ if !kind.built_in => None,
        "Event" => Some(HeldLimit { each: 1000, total: 50_000 }),
        "CertificateSigningRequest" if user.is_in_group(BOOTSTRAP_GROUP) => {
            Some(HeldLimit { each: 2000, total: 10_000 })
        }
        "CertificateSigningRequest" => Some(HeldLimit { each: 20, total: 10_000 }),
        _ => None,
    }
}

/// What each identity has used.
#[derive(Debug)]
pub(crate) struct Quotas {
    rates: WriteRates,
    started: Instant,
    buckets: Mutex<HashMap<String, TokenBucket>>,
    /// The keys that an identity has created, by user and kind.
    held: Mutex<HashMap<(String, String), HashSet<String>>>,
    /// How many objects of a kind there were, and when they were counted.
    totals: Mutex<HashMap<String, (Instant, usize)>>,
}

impl Quotas {
    pub(crate) fn new(rates: WriteRates) -> Self {
        Self {
            rates,
            started: Instant::now(),
            buckets: Mutex::default(),
            held: Mutex::default(),
            totals: Mutex::default(),
        }
    }

    /// Counts a write with a body of so many bytes. A large one counts as several: it takes as much of the history,
    /// which others need to continue their watches.
    ///
    /// # Errors
    /// 429: the identity writes too fast.
    pub(crate) fn check_rate(&self, user: &UserInfo, bytes: usize) -> Result<(), ApiError> {
        let Some(rate) = self.rates.of(user) else { return Ok(()) };
        let now = self.started.elapsed().as_secs_f64();
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MAX_IDENTITIES && !buckets.contains_key(&user.user) {
            buckets.retain(|_, bucket| !bucket.is_idle(self.rates.bootstrap, now));
        }
        let bucket = buckets.entry(user.user.clone());
        let bucket = bucket.or_insert_with(|| TokenBucket::full(rate, now));
        let cost = u32::try_from(1 + bytes / BYTES_PER_WRITE).unwrap_or(u32::MAX);
        bucket.take(rate, now, f64::from(cost)).map_err(|wait| {
            let message = format!(
                "User \"{}\" writes more than {} times a second (each {} KiB count as one): try again later",
                user.user,
                rate.per_second,
                BYTES_PER_WRITE >> 10
            );
            ApiError::quota_exceeded(message, whole_seconds(wait))
        })
    }

    /// Checks that an identity may create one more object of a kind.
    ///
    /// # Errors
    /// 429: it holds too many, or there are too many.
    pub(crate) fn check_held(
        &self,
        user: &UserInfo,
        kind: &ResourceKind,
        store: &Store,
    ) -> Result<(), ApiError> {
        let Some(limit) = held_limit(kind, user).filter(|_| !user.is_privileged()) else {
            return Ok(());
        };
        let mut held = self.held.lock();
        let mut count = 0;
        if let Some(keys) = held.get_mut(&identity_and_kind(user, kind)) {
            // Expired ones are dropped only when it matters: the check comes with every write.
            if keys.len() >= limit.each {
                keys.retain(|key| store.get(key).is_some());
            }
            count = keys.len();
        }
        drop(held);
        let prefix = object::storage_key(kind, None, "");
        let (what, whose, max) = if count >= limit.each {
            (count, format!("of user \"{}\"", user.user), limit.each)
        } else {
            let total = self.total(kind, store, &prefix);
            if total < limit.total {
                return Ok(());
            }
            (total, "in total".to_owned(), limit.total)
        };
        let message = format!(
            "there are {what} {} {whose}, the limit is {max}: wait until they expire, or delete some",
            kind.plural
        );
        Err(ApiError::quota_exceeded(message, HELD_RETRY_SECONDS))
    }

    /// How many objects of a kind there are. Counting reads all keys, so the number may be a second old.
    fn total(&self, kind: &ResourceKind, store: &Store, prefix: &str) -> usize {
        let mut totals = self.totals.lock();
        match totals.get(&kind.kind) {
            Some((counted, total)) if counted.elapsed() < TOTAL_LIFETIME => *total,
            _ => {
                let total = store.list(prefix, None, Some(0)).remaining;
                totals.insert(kind.kind.clone(), (Instant::now(), total));
                total
            }
        }
    }

    /// Records that an identity has created an object.
    pub(crate) fn record_created(&self, user: &UserInfo, kind: &ResourceKind, key: &str) {
        if user.is_privileged() || held_limit(kind, user).is_none() {
            return;
        }
        if let Some((_, total)) = self.totals.lock().get_mut(&kind.kind) {
            *total += 1;
        }
        let mut held = self.held.lock();
        if held.len() >= MAX_IDENTITIES {
            held.clear(); // the limit on all objects still holds
        }
        held.entry(identity_and_kind(user, kind)).or_default().insert(key.to_owned());
    }
}

/// Both versions of Event are one kind in the store.
fn identity_and_kind(user: &UserInfo, kind: &ResourceKind) -> (String, String) {
    (user.user.clone(), kind.kind.clone())
}

fn whole_seconds(wait: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let seconds = wait.ceil().clamp(1.0, 3600.0) as u32;
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::CONTROLLER_GROUP;
    use crate::store::{Precondition, StoreOp, StoreOptions};

    #[test]
    fn a_bucket_refills() {
        let rate = WriteRate { per_second: 2.0, burst: 3.0 };
        let mut bucket = TokenBucket::full(rate, 0.0);
        for _ in 0..3 {
            assert_eq!(bucket.take(rate, 0.0, 1.0), Ok(()));
        }
        assert_eq!(bucket.take(rate, 0.0, 1.0), Err(0.5));
        assert_eq!(bucket.take(rate, 0.5, 1.0), Ok(()));
        assert!(bucket.take(rate, 0.5, 1.0).is_err());
        assert!(!bucket.is_idle(rate, 1.0) && bucket.is_idle(rate, 2.0));
        assert_eq!(bucket.take(rate, 100.0, 1.0), Ok(()));
        assert!((bucket.tokens - 2.0).abs() < 1e-9, "a bucket holds no more than the burst");
        assert_eq!(bucket.take(rate, 100.0, 2.0), Ok(()));
        assert_eq!(bucket.take(rate, 101.0, 9.0), Err(0.5), "it never needs more than the burst");
        assert_eq!((whole_seconds(0.01), whole_seconds(1.2)), (1, 2));
    }

    #[test]
    fn administrators_and_controllers_are_not_limited() {
        let user = |group: &str| UserInfo::new("u", [group.to_owned()]);
        let rates = WriteRates::default();
        assert_eq!(rates.of(&UserInfo::admin()), None);
        assert_eq!(rates.of(&user(CONTROLLER_GROUP)), None);
        assert_eq!(rates.of(&UserInfo::node("a")), Some(rates.machine));
        assert_eq!(rates.of(&user(BOOTSTRAP_GROUP)), Some(rates.bootstrap));
    }

    fn event_kind() -> ResourceKind {
        crate::built_in::kinds().into_iter().find(|kind| kind.kind == "Event").unwrap()
    }

    #[test]
    fn idle_identities_are_forgotten() {
        let quotas = Quotas::new(WriteRates::default());
        let now = quotas.started.elapsed().as_secs_f64();
        let idle = TokenBucket::full(quotas.rates.bootstrap, now);
        for n in 0..MAX_IDENTITIES {
            quotas.buckets.lock().insert(n.to_string(), idle);
        }
        quotas.check_rate(&UserInfo::node("a"), 0).unwrap();
        assert_eq!(quotas.buckets.lock().len(), 1);
    }

    #[tokio::test]
    async fn an_identity_holds_a_limited_number_of_events() {
        let quotas = Quotas::new(WriteRates::default());
        let store = Store::in_memory(StoreOptions::default());
        let (machine, event) = (UserInfo::node("a"), event_kind());
        for n in 0..1000 {
            let key = object::storage_key(&event, Some("default"), &n.to_string());
            quotas.record_created(&machine, &event, &key);
            if n == 0 {
                continue; // deleted in the meantime
            }
            let value = bytes::Bytes::from_static(b"{}");
            let op = StoreOp::Put { key, value, expect: Precondition::Any };
            store.commit(vec![op]).await.unwrap();
        }
        assert_eq!(quotas.check_held(&machine, &event, &store), Ok(()));
        let key = object::storage_key(&event, Some("default"), "0");
        let put = |key: String| StoreOp::Put { key, value: "{}".into(), expect: Precondition::Any };
        store.commit(vec![put(key.clone())]).await.unwrap();
        quotas.record_created(&machine, &event, &key);
        let error = quotas.check_held(&machine, &event, &store).unwrap_err();
        assert_eq!(
            (error.code, error.details.unwrap()["retryAfterSeconds"].as_u64()),
            (429, Some(60))
        );
        assert!(error.message.contains("system:node:a") && error.message.contains("1000"));
        assert_eq!(quotas.check_held(&UserInfo::node("b"), &event, &store), Ok(()));
        assert_eq!(quotas.check_held(&UserInfo::admin(), &event, &store), Ok(()));

        let many = (0..50_000).map(|n| put(format!("/core/events/x/{n}"))).collect();
        store.commit(many).await.unwrap();
        let quotas = Quotas::new(WriteRates::default()); // it has not counted yet
        let error = quotas.check_held(&UserInfo::node("b"), &event, &store).unwrap_err();
        assert!(error.message.contains("in total"), "{error}");
        assert_eq!(quotas.check_held(&UserInfo::admin(), &event, &store), Ok(()));
    }
}
