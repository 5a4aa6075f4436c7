//! Deletes events an hour after they were last written, as kube-apiserver does.
//!
//! A background task of [`Hub`]; it touches no other kind. The time of a write is the hub's own:
//! whoever writes an event chooses the timestamps in it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::hub::Hub;
use crate::store::StoreEntry;
use crate::{object, sweep};

/// Lifetime of an event after it was last written.
const EVENT_TTL_SECONDS: i64 = 3600;
/// How often expired events are deleted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Key prefix of events in the store.
const EVENTS_PREFIX: &str = "/core/events/";

/// Runs until the hub stops.
pub(crate) async fn run(hub: Hub) {
    let stop = hub.cancellation_token();
    let mut times = WriteTimes::default();
    loop {
        let entries = hub.store().list(EVENTS_PREFIX, None, None).entries;
        sweep::delete_entries(&hub, &times.expired(entries, Timestamp::now())).await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SWEEP_INTERVAL) => {}
        }
    }
}

/// When each event was last written, to the precision of a sweep.
#[derive(Debug, Default)]
struct WriteTimes {
    /// The revision and the time in seconds, by key.
    written: HashMap<Arc<str>, (u64, i64)>,
    has_swept: bool,
}

impl WriteTimes {
    /// Records what changed since the last sweep and returns the expired events.
    fn expired(&mut self, entries: Vec<StoreEntry>, now: Timestamp) -> Vec<StoreEntry> {
        let mut written = HashMap::with_capacity(entries.len());
        let mut expired = Vec::new();
        for entry in entries {
            let known = self.written.get(&entry.key).filter(|(at, _)| *at == entry.revision);
            let time = match known {
                Some((_, time)) => *time,
                None if self.has_swept => now.as_second(),
                // After a start nobody knows when an event was written; its own times have to do.
                None => object::decode(&entry.value, entry.revision)
                    .map_or(0, |event| last_time(&event, now).as_second()),
            };
            written.insert(Arc::clone(&entry.key), (entry.revision, time));
            if now.as_second() - time > EVENT_TTL_SECONDS {
                expired.push(entry);
            }
        }
        self.written = written;
        self.has_swept = true;
        expired
    }
}

/// The newest time of an event that is not in the future.
fn last_time(event: &Value, now: Timestamp) -> Timestamp {
    let times = [
        &event["metadata"]["creationTimestamp"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["series"]["lastObservedTime"],
    ];
    let times = times.iter().filter_map(|time| time.as_str()?.parse::<Timestamp>().ok());
    times.filter(|time| *time <= now).max().unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(key: &str, revision: u64, created: &str, last: &str) -> StoreEntry {
        let event = json!({"metadata": {"creationTimestamp": created}, "lastTimestamp": last});
        StoreEntry { key: key.into(), value: event.to_string().into(), created: 1, revision }
    }

    fn keys(entries: &[StoreEntry]) -> Vec<String> {
        entries.iter().map(|entry| entry.key.to_string()).collect()
    }

    #[test]
    fn after_a_start_the_times_of_the_event_count_unless_they_are_in_the_future() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        for (created, last, expected) in [
            ("2026-01-01T11:30:00Z", "", false),
            ("2026-01-01T10:30:00Z", "", true),
            ("2026-01-01T10:30:00Z", "2026-01-01T11:30:00Z", false),
            ("2026-01-01T10:30:00Z", "2099-01-01T00:00:00Z", true),
            ("", "", false),
        ] {
            let found = WriteTimes::default().expired(vec![entry("a", 2, created, last)], now);
            assert_eq!(!found.is_empty(), expected, "{created} {last}");
        }
    }

    #[test]
    fn later_only_the_time_of_the_write_counts() {
        let time = |minute: i64| Timestamp::from_second(1_800_000_000 + minute * 60).unwrap();
        let mut times = WriteTimes::default();
        assert!(times.expired(Vec::new(), time(0)).is_empty());
        let future =
            |key, revision| entry(key, revision, "2099-01-01T00:00:00Z", "2099-01-01T00:00:00Z");
        let old = |key, revision| entry(key, revision, "1999-01-01T00:00:00Z", "");
        assert!(times.expired(vec![future("a", 2), old("b", 3)], time(1)).is_empty());
        // The second one is written again after half an hour.
        assert!(times.expired(vec![future("a", 2), old("b", 4)], time(31)).is_empty());
        let found = times.expired(vec![future("a", 2), old("b", 4)], time(62));
        assert_eq!(keys(&found), ["a"]);
        assert_eq!(keys(&times.expired(vec![old("b", 4)], time(92))), ["b"]);
    }

    #[test]
    fn an_event_that_cannot_be_read_is_deleted() {
        let broken = StoreEntry { key: "a".into(), value: "{".into(), created: 1, revision: 2 };
        assert_eq!(WriteTimes::default().expired(vec![broken], Timestamp::now()).len(), 1);
    }
}
