//! Limits how often one client may send requests: a token bucket for each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// At most this many addresses are tracked. Beyond that, those with a full bucket are dropped.
const MAX_ADDRESSES: usize = 65_536;

/// The buckets of all clients.
#[derive(Debug)]
pub struct RateLimiter {
    per_minute: f64,
    buckets: HashMap<IpAddr, (f64, Duration)>,
}

impl RateLimiter {
    /// Allows each address this many requests a minute, which may come in one burst.
    #[must_use]
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute: f64::from(per_minute.max(1)), buckets: HashMap::new() }
    }

    /// Whether this address may send a request now. `now` is the time since a fixed but arbitrary
    /// moment.
    pub fn try_acquire(&mut self, address: IpAddr, now: Duration) -> bool {
        let (most, per_minute) = (self.per_minute, self.per_minute);
        let level = |(level, at): (f64, Duration)| {
            let passed = now.saturating_sub(at).as_secs_f64() / 60.0;
            (level + passed * per_minute).min(most)
        };
        if self.buckets.len() >= MAX_ADDRESSES {
            self.buckets.retain(|_, bucket| level(*bucket) < most);
            if self.buckets.len() >= MAX_ADDRESSES {
                // More addresses than anyone has machines: limiting memory takes priority.
                self.buckets.clear();
            }
        }
        let bucket = self.buckets.entry(address.to_canonical()).or_insert((most, now));
        let left = level(*bucket);
        let may = left >= 1.0;
        *bucket = (if may { left - 1.0 } else { left }, now);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_an_even_rate() {
        let mut rate = RateLimiter::new(3);
        let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let second = Duration::from_secs;
        assert!((0..3).all(|_| rate.try_acquire(one, second(0))));
        assert!(!rate.try_acquire(one, second(0)));
        assert!(rate.try_acquire(other, second(0)));
        assert!(!rate.try_acquire(one, second(19)));
        assert!(rate.try_acquire(one, second(21)));
        assert!(!rate.try_acquire(one, second(21)));
        assert!((0..3).all(|_| rate.try_acquire(one, second(1000))));
        assert!(!rate.try_acquire(one, second(1000)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut rate = RateLimiter::new(1);
        for number in 0..200_000u32 {
            rate.try_acquire(IpAddr::V4(number.into()), Duration::ZERO);
            assert!(rate.buckets.len() <= MAX_ADDRESSES);
        }
    }
}
