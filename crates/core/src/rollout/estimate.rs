//! Estimates when a rollout ends.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// How long the rest of a rollout takes. `finished` holds start and end of each finished machine,
/// `remaining` counts the others (including those being updated), and `capacity` is how many are
/// updated at once.
///
/// Machines are updated in rounds of `capacity`. Each round takes the median time, so that one stuck
/// machine does not distort the estimate. `None` before the first machine has finished, or when the
/// capacity is zero.
#[must_use]
pub fn estimate(finished: &[(Time, Time)], remaining: usize, capacity: usize) -> Option<Duration> {
    if remaining == 0 {
        return Some(Duration::ZERO);
    }
    // A clock that was set back gives a negative time; skip it.
    let spans = finished.iter().map(|(start, end)| end.0.duration_since(start.0));
    let mut spans: Vec<Duration> = spans.filter_map(|span| span.try_into().ok()).collect();
    if capacity == 0 || spans.is_empty() {
        return None;
    }
    spans.sort_unstable();
    let median = spans[spans.len() / 2];
    let rounds = u32::try_from(remaining.div_ceil(capacity)).unwrap_or(u32::MAX);
    median.checked_mul(rounds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn took(seconds: i64) -> (Time, Time) {
        let at = |second: i64| {
            let base: Time = serde_json::from_value(json!("2026-11-15T10:00:00Z")).unwrap();
            Time(base.0 + Duration::from_secs(u64::try_from(second).unwrap()))
        };
        if seconds < 0 { (at(-seconds), at(0)) } else { (at(0), at(seconds)) }
    }

    #[test]
    fn rounds_of_the_median() {
        let cases: [(&[i64], usize, usize, Option<u64>); 8] = [
            (&[], 0, 1, Some(0)),
            (&[], 3, 1, None),
            (&[100], 3, 0, None),
            (&[100], 3, 1, Some(300)),
            (&[100], 3, 2, Some(200)),
            (&[90, 100, 7200], 10, 3, Some(400)),
            (&[-50], 3, 1, None),
            (&[-50, 60], 1, 5, Some(60)),
        ];
        for (finished, remaining, capacity, expected) in cases {
            let finished: Vec<(Time, Time)> = finished.iter().copied().map(took).collect();
            let found = estimate(&finished, remaining, capacity);
            assert_eq!(found, expected.map(Duration::from_secs), "{remaining} {capacity}");
        }
    }
}
