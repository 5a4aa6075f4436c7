//! How many lines of the audit log one machine or token may fill, so that it cannot push out what others of its class did.
//!
//! Only what repeats without end is counted: refused writes, dry runs, Events and updates. What a machine or a token
//! creates and deletes is bounded by the quotas of objects, and always logged. Called by the log.

use std::collections::HashMap;
use std::time::Instant;

use super::AuditEvent;

/// Lines at once. A daemon writes a few a minute.
const BURST: f64 = 500.0;
/// Lines in the long run.
const PER_SECOND: f64 = 0.2;
/// Idle identities are forgotten when there are more than this.
const MAX_IDENTITIES: usize = 10_000;

/// The budgets of all identities.
#[derive(Debug)]
pub(super) struct LineBudgets {
    started: Instant,
    by_user: HashMap<String, LineBudget>,
}

#[derive(Debug, Clone, Copy)]
struct LineBudget {
    left: f64,
    /// Seconds since the start.
    updated: f64,
    omitted: u64,
}

impl LineBudget {
    fn refilled(&self, now: f64) -> f64 {
        (self.left + (now - self.updated).max(0.0) * PER_SECOND).min(BURST)
    }
}

impl Default for LineBudgets {
    fn default() -> Self {
        Self { started: Instant::now(), by_user: HashMap::new() }
    }
}

impl LineBudgets {
    /// Whether an event is logged: how many of the same user were omitted before it, or `None`.
    pub(super) fn admit(&mut self, event: &AuditEvent<'_>) -> Option<u64> {
        self.admit_at(event, self.started.elapsed().as_secs_f64())
    }

    fn admit_at(&mut self, event: &AuditEvent<'_>, now: f64) -> Option<u64> {
        if self.by_user.len() >= MAX_IDENTITIES && !self.by_user.contains_key(event.user) {
            self.by_user.retain(|_, budget| budget.omitted > 0 || budget.refilled(now) < BURST);
            if self.by_user.len() >= MAX_IDENTITIES {
                self.by_user.clear();
            }
        }
        let full = LineBudget { left: BURST, updated: now, omitted: 0 };
        let budget = self.by_user.entry(event.user.to_owned()).or_insert(full);
        budget.left = budget.refilled(now);
        budget.updated = now;
        if repeats_without_end(event) {
            if budget.left < 1.0 {
                budget.omitted += 1;
                return None;
            }
            budget.left -= 1.0;
        }
        Some(std::mem::take(&mut budget.omitted))
    }
}

fn repeats_without_end(event: &AuditEvent<'_>) -> bool {
    event.code >= 400
        || event.dry_run
        || event.resource == "events"
        || matches!(event.verb, "update" | "patch")
}

#[cfg(test)]
mod tests {
    use super::super::tests::event;
    use super::*;

    #[test]
    fn a_flood_is_counted_and_what_matters_is_logged() {
        let mut budgets = LineBudgets::default();
        let refused = AuditEvent { code: 403, ..event("a", &[]) };
        let admitted = (0..2000).filter(|_| budgets.admit_at(&refused, 0.0).is_some()).count();
        assert_eq!(admitted, 500);
        for repeated in [
            AuditEvent { dry_run: true, ..event("a", &[]) },
            AuditEvent { resource: "events", ..event("a", &[]) },
            AuditEvent { verb: "patch", code: 200, ..event("a", &[]) },
        ] {
            assert_eq!(budgets.admit_at(&repeated, 0.0), None, "{repeated:?}");
        }
        assert_eq!(budgets.admit_at(&refused, 0.0), None);
        assert_eq!(budgets.admit_at(&event("a", &[]), 0.0), Some(1504), "a machine was created");
        assert_eq!(budgets.admit_at(&event("a", &[]), 0.0), Some(0));
        assert_eq!(budgets.admit_at(&AuditEvent { user: "b", ..refused }, 0.0), Some(0));
        assert_eq!(budgets.admit_at(&refused, 4.0), None);
        assert_eq!(budgets.admit_at(&refused, 10.0), Some(1));
    }

    #[test]
    fn identities_are_bounded() {
        let mut budgets = LineBudgets::default();
        let names: Vec<String> = (0..3 * MAX_IDENTITIES).map(|n| n.to_string()).collect();
        for name in &names {
            budgets.admit_at(&AuditEvent { code: 403, ..event(name, &[]) }, 0.0);
        }
        assert!(budgets.by_user.len() <= MAX_IDENTITIES);
    }
}
