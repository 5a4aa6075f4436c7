//! Which causes of one failure are in the log already. Causes may alternate for days: a server that is silent lets now this
//! timeout pass first, now that one.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

/// The same cause is logged again after this long.
const LOGGED_AGAIN_AFTER: Duration = Duration::from_secs(6 * 3600);
/// How many causes are logged in that time. A text may be another one each time.
const MAX_CAUSES: usize = 10;

/// The causes of one failure that were logged lately.
#[derive(Debug, Default)]
pub(super) struct LoggedCauses(Vec<(u64, Instant)>);

impl LoggedCauses {
    /// Whether a cause has to be logged. Then it counts as logged.
    pub(super) fn is_due(&mut self, cause: &str, now: Instant) -> bool {
        let mut hasher = DefaultHasher::new();
        cause.hash(&mut hasher);
        let cause = hasher.finish();
        self.0.retain(|(_, at)| now.duration_since(*at) < LOGGED_AGAIN_AFTER);
        let is_due = self.0.len() < MAX_CAUSES && self.0.iter().all(|(known, _)| *known != cause);
        if is_due {
            self.0.push((cause, now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_that_alternate_are_logged_once_in_hours() {
        let (mut logged, start) = (LoggedCauses::default(), Instant::now());
        let mut lines = 0;
        for second in 0..24 * 3600 {
            let cause = if second % 2 == 0 { "no response" } else { "deadline has elapsed" };
            lines += u32::from(logged.is_due(cause, start + Duration::from_secs(second)));
        }
        assert_eq!(lines, 2 * 4);
    }

    #[test]
    fn causes_that_are_always_others_are_bounded() {
        let (mut logged, start) = (LoggedCauses::default(), Instant::now());
        let due = (0..1000).filter(|n| logged.is_due(&n.to_string(), start)).count();
        assert_eq!((due, logged.0.len()), (MAX_CAUSES, MAX_CAUSES));
        assert!(logged.is_due("x", start + LOGGED_AGAIN_AFTER));
    }
}
