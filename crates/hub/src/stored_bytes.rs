//! Limits what all objects of a hub take together, for machines and tokens.
//!
//! Whoever has a bootstrap token for many machines has as many identities as it likes, each with its own quotas. So there
//! is also a limit on the sum, like the space quota of etcd. Administrators and controllers may write beyond it, and can so
//! delete what fills the hub. Called by the router before a write.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::auth::UserInfo;
use crate::status::ApiError;
use crate::store::Store;

/// The limit, unless the configuration has another one: several times what a fleet of 10,000 machines has.
pub(crate) const DEFAULT_MAX_STORED_BYTES: u64 = 1 << 30;
/// An object that exists may grow to this size all the same: the machines of a full hub can report their state.
const ALWAYS_ALLOWED_BYTES: usize = 64 << 10;
/// How long a sum is used. It reads all keys.
const SUM_LIFETIME: Duration = Duration::from_secs(1);
/// Advice to a client: an administrator has to delete something.
const RETRY_SECONDS: u32 = 60;

/// The sum of all objects.
#[derive(Debug)]
pub(crate) struct StoredBytes {
    limit: u64,
    /// When it was read, and what it is with all that was accepted since.
    sum: Mutex<Option<(Instant, u64)>>,
}

impl StoredBytes {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, sum: Mutex::default() }
    }

    /// Checks that a user may write an object of `new` bytes in the place of one of `old` bytes; 0 if there is none.
    ///
    /// # Errors
    /// 429: the hub is full.
    pub(crate) fn check(
        &self,
        user: &UserInfo,
        store: &Store,
        old: usize,
        new: usize,
    ) -> Result<(), ApiError> {
        let is_small_update = old > 0 && new <= ALWAYS_ALLOWED_BYTES;
        if user.is_privileged() || new <= old || is_small_update {
            return Ok(());
        }
        let grows = (new - old) as u64;
        let mut sum = self.sum.lock();
        let known = sum.filter(|(read, _)| read.elapsed() < SUM_LIFETIME);
        let (read, bytes) = known.unwrap_or_else(|| (Instant::now(), store.usage().bytes));
        if bytes.saturating_add(grows) > self.limit {
            *sum = Some((read, bytes));
            let message = format!(
                "all objects together take {bytes} bytes, and machines and tokens may not add {grows} to them: the limit \
                 is {}; an administrator can delete objects, such as Nodes of machines that nobody knows",
                self.limit
            );
            return Err(ApiError::quota_exceeded(message, RETRY_SECONDS));
        }
        *sum = Some((read, bytes + grows));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Precondition, StoreOp, StoreOptions};

    #[tokio::test]
    async fn a_full_hub_takes_no_more_from_machines() {
        let store = Store::in_memory(StoreOptions::default());
        let value = vec![b' '; 900_000].into();
        let put = StoreOp::Put { key: "/a".into(), value, expect: Precondition::Any };
        store.commit(vec![put]).await.unwrap();
        let quota = StoredBytes::new(1_000_000);
        let check = |user: &UserInfo, old, new| quota.check(user, &store, old, new).is_ok();
        let machine = UserInfo::node("a");
        assert!(check(&machine, 0, 60_000));
        assert!(!check(&machine, 0, 60_000), "what was accepted counts before it is stored");
        assert!(check(&machine, 0, 30_000));
        assert!(!check(&machine, 100, 90_000) && check(&machine, 100, 60_000));
        assert!(check(&machine, 900_000, 899_999), "nothing grows");
        assert!(check(&UserInfo::admin(), 0, 3_000_000));
    }
}
