//! Remembers what reviews found, so that a client that reads metrics every few seconds costs the API server little.

use std::collections::HashMap;
use std::time::Duration;

use super::ReviewResult;

/// How long a token that is allowed needs no other review. A revoked token still reads metrics for this long.
const ALLOWED_TTL: Duration = Duration::from_secs(60);
/// How long a token that is not allowed is rejected without another review.
const REJECTED_TTL: Duration = Duration::from_secs(10);
/// How long a token counts as known after it was allowed.
const KNOWN_TTL: Duration = Duration::from_secs(3600);
/// The most tokens that are remembered.
const MAX_ENTRIES: usize = 1024;

/// The SHA-256 of a token. Tokens themselves are not kept.
pub type TokenHash = [u8; 32];

/// What is known about a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachedReview {
    /// What the reviews found a moment ago.
    Current(ReviewResult),
    /// It was allowed, and has to be reviewed again.
    WasAllowed,
    /// Nothing.
    Unknown,
}

#[derive(Debug)]
struct ReviewEntry {
    result: ReviewResult,
    at: Duration,
}

/// The results of the last reviews. All times are since a fixed but arbitrary moment.
#[derive(Debug, Default)]
pub struct ReviewCache {
    entries: HashMap<TokenHash, ReviewEntry>,
}

impl ReviewCache {
    /// What is known about a token.
    #[must_use]
    pub fn get(&self, token: &TokenHash, now: Duration) -> CachedReview {
        let Some(entry) = self.entries.get(token) else { return CachedReview::Unknown };
        let age = now.saturating_sub(entry.at);
        let is_allowed = entry.result == ReviewResult::Allowed;
        let ttl = if is_allowed { ALLOWED_TTL } else { REJECTED_TTL };
        match age {
            age if age < ttl => CachedReview::Current(entry.result.clone()),
            age if is_allowed && age < KNOWN_TTL => CachedReview::WasAllowed,
            _ => CachedReview::Unknown,
        }
    }

    /// Remembers what a review found. What says nothing about the token is not remembered.
    pub fn insert(&mut self, token: TokenHash, result: ReviewResult, now: Duration) {
        if matches!(result, ReviewResult::Throttled | ReviewResult::Failed) {
            return;
        }
        if self.entries.len() >= MAX_ENTRIES && !self.entries.contains_key(&token) {
            self.evict(now);
        }
        self.entries.insert(token, ReviewEntry { result, at: now });
    }

    /// Drops what has expired, or else the oldest entry: first those of tokens that are not allowed, which anyone can make.
    fn evict(&mut self, now: Duration) {
        self.entries.retain(|_, entry| {
            let is_allowed = entry.result == ReviewResult::Allowed;
            let ttl = if is_allowed { KNOWN_TTL } else { REJECTED_TTL };
            now.saturating_sub(entry.at) < ttl
        });
        if self.entries.len() < MAX_ENTRIES {
            return;
        }
        let rank = |entry: &ReviewEntry| (entry.result == ReviewResult::Allowed, entry.at);
        let oldest = self.entries.iter().min_by_key(|(_, entry)| rank(entry));
        if let Some(token) = oldest.map(|(token, _)| *token) {
            self.entries.remove(&token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u32) -> TokenHash {
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&number.to_be_bytes());
        hash
    }

    #[test]
    fn results_expire() {
        let second = Duration::from_secs;
        let forbidden = ReviewResult::Forbidden { user: "u".to_owned() };
        let mut cache = ReviewCache::default();
        cache.insert(hash(1), ReviewResult::Allowed, second(0));
        cache.insert(hash(2), ReviewResult::Unauthenticated, second(0));
        cache.insert(hash(3), forbidden.clone(), second(0));
        cache.insert(hash(4), ReviewResult::Failed, second(0));
        cache.insert(hash(5), ReviewResult::Throttled, second(0));
        for (number, at, expected) in [
            (1, 59, CachedReview::Current(ReviewResult::Allowed)),
            (1, 60, CachedReview::WasAllowed),
            (1, 3600, CachedReview::Unknown),
            (2, 9, CachedReview::Current(ReviewResult::Unauthenticated)),
            (2, 10, CachedReview::Unknown),
            (3, 9, CachedReview::Current(forbidden)),
            (3, 10, CachedReview::Unknown),
            (4, 0, CachedReview::Unknown),
            (5, 0, CachedReview::Unknown),
            (6, 0, CachedReview::Unknown),
        ] {
            assert_eq!(cache.get(&hash(number), second(at)), expected, "{number} at {at}");
        }
    }

    #[test]
    fn a_flood_of_bad_tokens_neither_fills_memory_nor_evicts_good_ones() {
        let mut cache = ReviewCache::default();
        cache.insert(hash(0), ReviewResult::Allowed, Duration::ZERO);
        for number in 1..10_000 {
            let now = Duration::from_millis(u64::from(number));
            cache.insert(hash(number), ReviewResult::Unauthenticated, now);
            assert!(cache.entries.len() <= MAX_ENTRIES);
        }
        let now = Duration::from_secs(10);
        assert_eq!(cache.get(&hash(0), now), CachedReview::Current(ReviewResult::Allowed));
        // Many good tokens are bounded, too.
        for number in 10_000..20_000 {
            cache.insert(hash(number), ReviewResult::Allowed, now);
            assert!(cache.entries.len() <= MAX_ENTRIES);
        }
    }
}
