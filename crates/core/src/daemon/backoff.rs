//! The pause after a failure: short at first, then longer.

use std::time::Duration;

/// The longest pause.
const MAX_BACKOFF_SECONDS: u64 = 60;

/// The pause after this many failures in a row.
#[must_use]
pub fn backoff(failures: u32) -> Duration {
    let doubled = 1u64.checked_shl(failures.saturating_sub(1)).unwrap_or(MAX_BACKOFF_SECONDS);
    Duration::from_secs(doubled.min(MAX_BACKOFF_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute() {
        let seconds: Vec<u64> = (1..=8).map(|count| backoff(count).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff(0).as_secs(), 1);
        assert_eq!(backoff(u32::MAX).as_secs(), 60);
    }
}
