//! Deletes CSRs as the cleaner of kube-controller-manager does.
//!
//! A background task of [`Hub`]; it touches no other kind. Without it every request that anyone ever
//! made stays in memory and on disk.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::hub::Hub;
use crate::store::StoreEntry;
use crate::{object, sweep};

/// Lifetime of a CSR that nobody has decided about.
const PENDING_TTL_SECONDS: i64 = 24 * 3600;
/// Lifetime of a CSR after it was approved, denied, failed or issued.
const DECIDED_TTL_SECONDS: i64 = 3600;
/// How often expired CSRs are deleted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Key prefix of CSRs in the store.
const CSR_PREFIX: &str = "/certificates.k8s.io/certificatesigningrequests/-/";

/// Runs until the hub stops.
pub(crate) async fn run(hub: Hub) {
    let stop = hub.cancellation_token();
    loop {
        let entries = hub.store().list(CSR_PREFIX, None, None).entries;
        sweep::delete_entries(&hub, &expired(entries, Timestamp::now())).await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SWEEP_INTERVAL) => {}
        }
    }
}

fn expired(entries: Vec<StoreEntry>, now: Timestamp) -> Vec<StoreEntry> {
    let is_expired = |entry: &StoreEntry| {
        object::decode(&entry.value, entry.revision).is_ok_and(|csr| is_expired(&csr, now))
    };
    entries.into_iter().filter(is_expired).collect()
}

/// Whether a CSR is past its lifetime. A time in the future counts as the creation.
fn is_expired(csr: &Value, now: Timestamp) -> bool {
    let parse = |text: &Value| text.as_str()?.parse::<Timestamp>().ok().filter(|time| *time <= now);
    let Some(created) = parse(&csr["metadata"]["creationTimestamp"]) else { return false };
    let age = |since: Timestamp| now.as_second() - since.as_second();
    let conditions = csr["status"]["conditions"].as_array();
    let decided = conditions
        .into_iter()
        .flatten()
        .filter(|condition| {
            matches!(condition["type"].as_str(), Some("Approved" | "Denied" | "Failed"))
        })
        .map(|condition| parse(&condition["lastUpdateTime"]).unwrap_or(created).max(created))
        .max();
    match decided {
        Some(since) => age(since) > DECIDED_TTL_SECONDS,
        None => age(created) > PENDING_TTL_SECONDS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lifetimes() {
        let now: Timestamp = "2026-01-02T12:00:00Z".parse().unwrap();
        let (young, day_old) = ("2026-01-02T11:30:00Z", "2026-01-01T11:00:00Z");
        let csr = |created: &str, condition: &str, since: &str| {
            json!({
                "metadata": {"creationTimestamp": created},
                "status": {"conditions": [{"type": condition, "lastUpdateTime": since}]},
            })
        };
        for (object, expected) in [
            (csr(young, "Other", ""), false),
            (csr("2026-01-01T13:00:00Z", "Other", ""), false),
            (csr(day_old, "Other", ""), true),
            (csr(day_old, "Approved", young), false),
            (csr(day_old, "Approved", "2026-01-02T10:30:00Z"), true),
            (csr(day_old, "Denied", "2026-01-02T10:30:00Z"), true),
            (csr(day_old, "Failed", ""), true),
            (csr(day_old, "Denied", "2099-01-01T00:00:00Z"), true),
            (csr(young, "Denied", "1999-01-01T00:00:00Z"), false),
            (json!({"metadata": {}}), false),
        ] {
            assert_eq!(is_expired(&object, now), expected, "{object}");
        }
    }
}
