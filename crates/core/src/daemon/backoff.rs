//! When to try again after a failure: soon at first, then ever more seldom.

use std::time::Duration;

/// The longest pause.
const LONGEST: u64 = 60;

/// How long to wait after so many failures in a row.
#[must_use]
pub fn after_failures(failures: u32) -> Duration {
    let doubled = 1u64.checked_shl(failures.saturating_sub(1)).unwrap_or(LONGEST);
    Duration::from_secs(doubled.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute() {
        let seconds: Vec<u64> = (1..=8).map(|count| after_failures(count).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(after_failures(0).as_secs(), 1);
        assert_eq!(after_failures(u32::MAX).as_secs(), 60);
    }
}
