//! How much of its responses one machine or token may have compressed.
//!
//! Compression costs some ten times the processor time of the plain text, and who reads a large object again and again must
//! not take the processors from others. Over its budget an identity gets the plain text, which is never an error. Called by
//! the router.

use std::collections::HashMap;
use std::time::Instant;

/// Bytes at once: a daemon that reads a large config, and all it needs after a restart.
const BURST: f64 = (32 << 20) as f64;
/// Bytes a second in the long run: some two hundredths of a processor.
const PER_SECOND: f64 = (2 << 20) as f64;
/// Identities whose budget is full are forgotten when there are more than this.
const MAX_IDENTITIES: usize = 10_000;

/// The budgets of all identities.
#[derive(Debug)]
pub(crate) struct CompressionBudgets {
    started: Instant,
    by_user: HashMap<String, ByteBudget>,
}

#[derive(Debug, Clone, Copy)]
struct ByteBudget {
    left: f64,
    /// Seconds since the start.
    updated: f64,
}

impl ByteBudget {
    fn refilled(&self, now: f64) -> f64 {
        (self.left + (now - self.updated).max(0.0) * PER_SECOND).min(BURST)
    }
}

impl Default for CompressionBudgets {
    fn default() -> Self {
        Self { started: Instant::now(), by_user: HashMap::new() }
    }
}

impl CompressionBudgets {
    /// Takes what a response costs. `false` if the user has to take it uncompressed.
    pub(crate) fn take(&mut self, user: &str, bytes: usize) -> bool {
        self.take_at(user, bytes, self.started.elapsed().as_secs_f64())
    }

    fn take_at(&mut self, user: &str, bytes: usize, now: f64) -> bool {
        if self.by_user.len() >= MAX_IDENTITIES && !self.by_user.contains_key(user) {
            self.by_user.retain(|_, budget| budget.refilled(now) < BURST);
            // Forgetting one that is used up would fill it.
            if self.by_user.len() >= MAX_IDENTITIES {
                return false;
            }
        }
        let full = ByteBudget { left: BURST, updated: now };
        let budget = self.by_user.entry(user.to_owned()).or_insert(full);
        *budget = ByteBudget { left: budget.refilled(now), updated: now };
        let cost = bytes as f64;
        let is_affordable = cost <= budget.left;
        if is_affordable {
            budget.left -= cost;
        }
        is_affordable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_identity_has_a_budget_that_fills_again() {
        let mut budgets = CompressionBudgets::default();
        let mut takes = |user: &str, mib: usize, now: f64| budgets.take_at(user, mib << 20, now);
        assert!(takes("a", 20, 0.0) && takes("a", 12, 0.0));
        assert!(!takes("a", 1, 0.0) && takes("b", 32, 0.0));
        assert!(!takes("a", 3, 1.0) && takes("a", 2, 1.0));
        assert!(!takes("a", 33, 1e9), "more than the burst");
        assert!(takes("a", 32, 1e9));
    }

    #[test]
    fn identities_are_bounded_and_none_is_refilled_by_others() {
        let mut budgets = CompressionBudgets::default();
        assert!(budgets.take_at("spent", 32 << 20, 0.0));
        let mut granted = 0;
        for name in 0..2 * MAX_IDENTITIES {
            granted += usize::from(budgets.take_at(&name.to_string(), 1, 0.0));
        }
        assert_eq!(granted, MAX_IDENTITIES - 1);
        assert!(!budgets.take_at("spent", 1, 0.0));
        assert!(budgets.take_at("later", 1, 20.0), "the others are full again and forgotten");
        assert!(budgets.by_user.len() <= MAX_IDENTITIES);
    }
}
