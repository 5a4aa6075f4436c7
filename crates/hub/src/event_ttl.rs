//! Deletes events an hour after they were last seen, as kube-apiserver does.
//!
//! A background task of [`Hub`]; it touches no other kind.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::hub::Hub;
use crate::object;
use crate::store::{Precondition, StoreOp};

/// Lifetime of an event after it was last seen.
const EVENT_TTL_SECONDS: i64 = 3600;
/// How often expired events are deleted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Events deleted in one transaction.
const BATCH_SIZE: usize = 500;
/// Key prefix of events in the store.
const EVENTS_PREFIX: &str = "/core/events/";

/// Runs until the hub stops.
pub(crate) async fn run(hub: Hub) {
    let stop = hub.cancellation_token();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SWEEP_INTERVAL) => delete_expired(&hub, Timestamp::now()).await,
        }
    }
}

async fn delete_expired(hub: &Hub, now: Timestamp) {
    let mut ops = Vec::new();
    for entry in hub.store().list(EVENTS_PREFIX, None, None).entries {
        let Ok(event) = object::decode(&entry.value, entry.revision) else { continue };
        if is_expired(&event, now) {
            let expect = Precondition::Revision(entry.revision);
            ops.push(StoreOp::Delete { key: entry.key.to_string(), expect });
        }
    }
    while !ops.is_empty() {
        let rest = ops.split_off(ops.len().min(BATCH_SIZE));
        // An event written in the meantime fails its whole batch; the next sweep retries it.
        if let Err(error) = hub.store().commit(std::mem::replace(&mut ops, rest)).await {
            tracing::debug!(%error, "cannot delete expired events");
        }
    }
}

/// Whether the newest timestamp of an event is older than the TTL.
fn is_expired(event: &Value, now: Timestamp) -> bool {
    let times = [
        &event["metadata"]["creationTimestamp"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["series"]["lastObservedTime"],
    ];
    let newest = times.iter().filter_map(|time| time.as_str()?.parse::<Timestamp>().ok()).max();
    newest.is_some_and(|time| now.as_second() - time.as_second() > EVENT_TTL_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_expires_an_hour_after_its_last_timestamp() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let event = |created: &str, last: &str| json!({"metadata": {"creationTimestamp": created}, "lastTimestamp": last});
        for (created, last, expected) in [
            ("2026-01-01T11:30:00Z", "", false),
            ("2026-01-01T10:30:00Z", "", true),
            ("2026-01-01T10:30:00Z", "2026-01-01T11:30:00Z", false),
            ("", "", false),
        ] {
            assert_eq!(is_expired(&event(created, last), now), expected, "{created} {last}");
        }
    }
}
