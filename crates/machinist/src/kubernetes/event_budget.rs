//! How many events about one object a process records: machines cause them with what they write into their Nodes, as fast
//! as they like. The filter of client-go does the same. Called by the recorder.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Events at once. An update of a machine has about ten.
const BURST: f64 = 200.0;
/// Events in the long run: an event is kept for an hour, so an object has about a thousand.
const PER_SECOND: f64 = 0.25;
/// Objects with a full budget are forgotten when there are more than this.
const MAX_OBJECTS: usize = 10_000;

/// The budgets of all objects, by kind and name.
#[derive(Debug, Default)]
pub(super) struct EventBudgets {
    by_object: HashMap<(String, String), (f64, Instant)>,
}

fn refilled((left, since): (f64, Instant), now: Instant) -> f64 {
    let elapsed = now.checked_duration_since(since).unwrap_or(Duration::ZERO);
    (left + elapsed.as_secs_f64() * PER_SECOND).min(BURST)
}

impl EventBudgets {
    /// Whether one more event about an object is recorded.
    pub(super) fn admit(&mut self, kind: &str, name: &str, now: Instant) -> bool {
        let key = (kind.to_owned(), name.to_owned());
        if self.by_object.len() >= MAX_OBJECTS && !self.by_object.contains_key(&key) {
            self.by_object.retain(|_, budget| refilled(*budget, now) < BURST);
            if self.by_object.len() >= MAX_OBJECTS {
                self.by_object.clear();
            }
        }
        let budget = self.by_object.entry(key).or_insert((BURST, now));
        let left = refilled(*budget, now);
        let is_admitted = left >= 1.0;
        *budget = (if is_admitted { left - 1.0 } else { left }, now);
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_about_one_object_leaves_the_events_of_others() {
        let (mut budgets, now) = (EventBudgets::default(), Instant::now());
        let admitted = (0..10_000).filter(|_| budgets.admit("Node", "a", now)).count();
        assert_eq!(admitted, 200);
        assert!(budgets.admit("Node", "b", now) && budgets.admit("MachineConfigPool", "a", now));
        let later = now + Duration::from_secs(40);
        assert_eq!((0..100).filter(|_| budgets.admit("Node", "a", later)).count(), 10);
        for name in 0..3 * MAX_OBJECTS {
            budgets.admit("Node", &name.to_string(), now);
        }
        assert!(budgets.by_object.len() <= MAX_OBJECTS);
    }
}
