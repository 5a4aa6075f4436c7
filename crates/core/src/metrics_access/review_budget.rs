//! How many reviews the API server is asked for: a flood of made-up tokens must neither burden it nor keep out clients
//! whose token was valid before.

use std::net::IpAddr;
use std::time::Duration;

use crate::serve::enrol::address_block;
use crate::serve::rate_limit::RateLimiter;

/// Reviews of unknown tokens a second, from all addresses, and how many of them at once.
const UNKNOWN_PER_SECOND: f64 = 5.0;
const UNKNOWN_BURST: f64 = 20.0;
/// Reviews of unknown tokens a minute from one address (for IPv6, one /64 network).
const UNKNOWN_PER_ADDRESS: u32 = 60;
/// Reviews of tokens that were allowed before. Each of them needs one a minute.
const KNOWN_PER_SECOND: f64 = 20.0;
const KNOWN_BURST: f64 = 50.0;

/// A token bucket.
#[derive(Debug)]
struct Bucket {
    per_second: f64,
    burst: f64,
    level: f64,
    at: Duration,
}

impl Bucket {
    fn new(per_second: f64, burst: f64) -> Self {
        Self { per_second, burst, level: burst, at: Duration::ZERO }
    }

    fn try_acquire(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level + passed * self.per_second).min(self.burst);
        self.at = self.at.max(now);
        let may = self.level >= 1.0;
        if may {
            self.level -= 1.0;
        }
        may
    }
}

/// The reviews that may still be made. All times are since a fixed but arbitrary moment.
#[derive(Debug)]
pub struct ReviewBudget {
    known: Bucket,
    unknown: Bucket,
    by_address: RateLimiter,
}

impl Default for ReviewBudget {
    fn default() -> Self {
        Self {
            known: Bucket::new(KNOWN_PER_SECOND, KNOWN_BURST),
            unknown: Bucket::new(UNKNOWN_PER_SECOND, UNKNOWN_BURST),
            by_address: RateLimiter::new(UNKNOWN_PER_ADDRESS),
        }
    }
}

impl ReviewBudget {
    /// Whether a token from this address may be reviewed now.
    pub fn try_acquire(&mut self, address: IpAddr, was_allowed: bool, now: Duration) -> bool {
        if was_allowed {
            return self.known.try_acquire(now);
        }
        // The address first: what it is refused must not use up the budget of others.
        self.by_address.try_acquire(address_block(address), now) && self.unknown.try_acquire(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTACKER: [u8; 4] = [10, 0, 0, 1];
    const OTHER: [u8; 4] = [10, 0, 0, 2];

    /// How many of `attempts` a second are reviewed within a minute.
    fn reviewed(budget: &mut ReviewBudget, addresses: u32, attempts: u32) -> usize {
        let attempt = |number: u32| {
            let now = Duration::from_secs(60).mul_f64(f64::from(number) / f64::from(attempts * 60));
            (IpAddr::from((0x0a00_0000 + number % addresses).to_be_bytes()), now)
        };
        let mut count = 0;
        for (address, now) in (0..attempts * 60).map(attempt) {
            count += usize::from(budget.try_acquire(address, false, now));
        }
        count
    }

    #[test]
    fn thousands_of_bad_tokens_cause_few_reviews() {
        let one = reviewed(&mut ReviewBudget::default(), 1, 1000);
        assert!((60..=121).contains(&one), "{one}");
        let many = reviewed(&mut ReviewBudget::default(), 1000, 1000);
        assert!((300..=320).contains(&many), "{many}");
    }

    #[test]
    fn a_flood_from_one_address_blocks_neither_others_nor_known_tokens() {
        let mut budget = ReviewBudget::default();
        for number in 0..30_000u32 {
            let now = Duration::from_millis(u64::from(number));
            budget.try_acquire(ATTACKER.into(), false, now);
        }
        let now = Duration::from_secs(30);
        assert!(budget.try_acquire(OTHER.into(), false, now));
        assert!(budget.try_acquire(ATTACKER.into(), true, now));
        // From everywhere at once, only known tokens are left.
        for number in 0..1000u32 {
            budget.try_acquire(IpAddr::from(number.to_be_bytes()), false, now);
        }
        assert!(!budget.try_acquire([10, 9, 9, 9].into(), false, now));
        assert!(budget.try_acquire(OTHER.into(), true, now));
    }
}
