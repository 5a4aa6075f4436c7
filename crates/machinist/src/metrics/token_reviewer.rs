//! Verifies bearer tokens with the API server: a TokenReview, then a SubjectAccessReview for `get` on `/metrics`.
//!
//! Results are cached and reviews are limited (`core::metrics_access`), so that a flood of tokens does not reach the API
//! server. Tokens are neither kept nor logged.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use machinist_core::metrics_access::review_budget::ReviewBudget;
use machinist_core::metrics_access::review_cache::{CachedReview, ReviewCache, TokenHash};
use machinist_core::metrics_access::{METRICS_PATH, ReviewResult};
use machinist_hub::failure_log::FailureLog;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

/// How long both reviews of a token may take. Prometheus waits 10 seconds for a scrape by default.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// The task under which failures are reported.
const TASK: &str = "verify a token for /metrics";

/// Verifies tokens with one API server.
pub(super) struct TokenReviewer {
    client: Client,
    cache: Mutex<ReviewCache>,
    budget: Mutex<ReviewBudget>,
    failures: FailureLog,
    /// The zero of all times in the cache.
    started: Instant,
}

impl fmt::Debug for TokenReviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReviewer").finish_non_exhaustive()
    }
}

impl TokenReviewer {
    pub(super) fn new(client: Client, failures: FailureLog) -> Self {
        Self {
            client,
            cache: Mutex::default(),
            budget: Mutex::default(),
            failures,
            started: Instant::now(),
        }
    }

    /// What the API server, or the cache, says about a token that came from an address.
    pub(super) async fn review(&self, token: &str, address: IpAddr) -> ReviewResult {
        let hash: TokenHash = Sha256::digest(token).into();
        let now = self.started.elapsed();
        let cached = self.cache.lock().get(&hash, now);
        let was_allowed = match cached {
            CachedReview::Current(result) => return result,
            CachedReview::WasAllowed => true,
            CachedReview::Unknown => false,
        };
        if !self.budget.lock().try_acquire(address, was_allowed, now) {
            return ReviewResult::Throttled;
        }
        let reviewed = timeout(REVIEW_TIMEOUT, self.ask(token)).await;
        let reviewed = reviewed.unwrap_or_else(|_| Err(anyhow!("the API server does not answer")));
        let result = self.failures.record(TASK, "", reviewed).unwrap_or(ReviewResult::Failed);
        self.cache.lock().insert(hash, result.clone(), self.started.elapsed());
        result
    }

    async fn ask(&self, token: &str) -> Result<ReviewResult> {
        let Some(user) = self.token_user(token).await? else {
            return Ok(ReviewResult::Unauthenticated);
        };
        let name = user.username.clone().unwrap_or_default();
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(METRICS_PATH.to_owned()),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = api.create(&PostParams::default(), &review).await;
        let review = review.map_err(readable).context("cannot create a SubjectAccessReview")?;
        let status = review.status.unwrap_or_default();
        Ok(match status.allowed && !status.denied.unwrap_or_default() {
            true => ReviewResult::Allowed,
            false => ReviewResult::Forbidden { user: name },
        })
    }

    /// The user of a token; none if it is not valid.
    async fn token_user(&self, token: &str) -> Result<Option<UserInfo>> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let review = api.create(&PostParams::default(), &review).await;
        let review = review.map_err(readable).context("cannot create a TokenReview")?;
        let status = review.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated.unwrap_or_default());
        Ok(user.filter(|user| user.username.as_ref().is_some_and(|name| !name.is_empty())))
    }
}

/// An error with its remedy, if this process may not review.
fn readable(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.code == 403 => anyhow!(
            "{}: bind the account of this process to ClusterRole system:auth-delegator",
            status.message
        ),
        error => error.into(),
    }
}
