//! Marks Nodes whose machines are silent, as the node controller of kube-controller-manager does.
//!
//! A background task of [`Hub`]: a machine renews its Lease in `kube-node-lease` every few seconds. If it does not for
//! 40 seconds, the conditions that it reports are `Unknown`. It writes them again when it is back. Nodes without a
//! Lease are left alone: nobody promised to renew one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::hub::{Hub, now_rfc3339};
use crate::machines::NODE_KEY_PREFIX;
use crate::object;
use crate::store::{CommitError, Precondition, StoreOp};

/// Key prefix of the machines' Leases.
const LEASES_PREFIX: &str = "/coordination.k8s.io/leases/kube-node-lease/";
/// After this long without a renewal a machine is silent. The default of kube-controller-manager was 40 seconds for
/// ten years, and four times the interval of the renewals.
const GRACE_PERIOD: Duration = Duration::from_secs(40);
/// How often Leases are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The conditions that a machine reports.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// The reason of a condition that nobody reports any more, as in Kubernetes.
const REASON: &str = "NodeStatusUnknown";

/// The task under which failed writes are reported.
const TASK: &str = "mark a silent machine";

/// Runs until the hub stops.
pub(crate) async fn run(hub: Hub) {
    let stop = hub.cancellation_token();
    let mut renewals = Renewals::default();
    loop {
        let entries = hub.store().list(LEASES_PREFIX, None, None).entries;
        let leases = entries.iter().map(|entry| (&entry.key, entry.revision));
        for key in renewals.overdue(leases, Instant::now()) {
            let name = key.strip_prefix(LEASES_PREFIX).unwrap_or_default();
            mark_unknown(&hub, name, &entries_time(&hub, &key)).await;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
}

/// When each Lease was last seen to change, by this process's clock: neither the clocks of machines nor a hub that was
/// stopped make a machine silent.
#[derive(Debug, Default)]
struct Renewals {
    seen: HashMap<Arc<str>, (u64, Instant)>,
}

impl Renewals {
    /// Records the Leases and returns the keys of those that are overdue.
    fn overdue<'a>(
        &mut self,
        leases: impl Iterator<Item = (&'a Arc<str>, u64)>,
        now: Instant,
    ) -> Vec<Arc<str>> {
        let mut seen = HashMap::with_capacity(self.seen.len());
        let mut overdue = Vec::new();
        for (key, revision) in leases {
            let known = self.seen.get(key).filter(|(at, _)| *at == revision);
            let since = known.map_or(now, |(_, since)| *since);
            if now.duration_since(since) > GRACE_PERIOD {
                overdue.push(Arc::clone(key));
            }
            seen.insert(Arc::clone(key), (revision, since));
        }
        self.seen = seen;
        overdue
    }
}

/// When the machine says that it renewed its Lease last.
fn entries_time(hub: &Hub, key: &str) -> String {
    let lease = hub.store().get(key).and_then(|it| object::decode(&it.value, it.revision).ok());
    let lease = lease.unwrap_or_default();
    lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned()
}

async fn mark_unknown(hub: &Hub, name: &str, renewed: &str) {
    let Some(entry) = hub.store().get(&format!("{NODE_KEY_PREFIX}{name}")) else { return };
    let Ok(node) = object::decode(&entry.value, entry.revision) else { return };
    let Some(new) = with_unknown_conditions(&node, renewed, &now_rfc3339()) else { return };
    let Ok(value) = object::encode(&new) else { return };
    let expect = Precondition::Revision(entry.revision);
    match hub.store().commit(vec![StoreOp::Put { key: entry.key.to_string(), value, expect }]).await
    {
        Ok(_) => tracing::warn!(node = name, renewed, "a machine has not renewed its lease"),
        // The next check tries again.
        Err(CommitError::Conflict { .. }) => {}
        Err(error) => {
            hub.failures().failed(TASK, name, &error.to_string());
            return;
        }
    }
    hub.failures().succeeded(TASK, name);
}

/// The Node with conditions that are unknown; `None` if they are already, or if it never reported one.
fn with_unknown_conditions(node: &Value, renewed: &str, now: &str) -> Option<Value> {
    let mut new = node.clone();
    let mut has_changed = false;
    for condition in new["status"]["conditions"].as_array_mut()? {
        let is_reported = condition["type"].as_str().is_some_and(|type_| REPORTED.contains(&type_));
        if !is_reported || condition["status"] == "Unknown" {
            continue;
        }
        has_changed = true;
        condition["status"] = "Unknown".into();
        condition["reason"] = REASON.into();
        condition["message"] =
            format!("the machine is silent: it renewed its lease last at {renewed}").into();
        condition["lastTransitionTime"] = json!(now);
    }
    has_changed.then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_overdue_after_forty_seconds_without_a_change() {
        let (key, start) = (Arc::<str>::from("/a"), Instant::now());
        let mut renewals = Renewals::default();
        let mut at = |revision: u64, seconds: u64| {
            renewals.overdue([(&key, revision)].into_iter(), start + Duration::from_secs(seconds))
        };
        // Whenever the hub starts, a machine has the whole period.
        assert!(at(1, 0).is_empty() && at(1, 40).is_empty());
        assert_eq!(at(1, 41), [Arc::clone(&key)]);
        assert!(at(2, 45).is_empty() && at(2, 85).is_empty());
        assert_eq!(at(2, 86).len(), 1);
        assert!(renewals.overdue(std::iter::empty(), start).is_empty());
        assert!(renewals.seen.is_empty(), "a machine that left is forgotten");
    }

    #[test]
    fn conditions_of_a_silent_machine_are_unknown_once() {
        let node = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "DaemonReady"},
            {"type": "Other", "status": "True"},
        ]}});
        let new = with_unknown_conditions(&node, "T1", "T2").unwrap();
        assert_eq!(
            new["status"]["conditions"],
            json!([
                {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
                 "message": "the machine is silent: it renewed its lease last at T1", "lastTransitionTime": "T2"},
                {"type": "Other", "status": "True"},
            ])
        );
        assert_eq!(with_unknown_conditions(&new, "T1", "T3"), None);
        assert_eq!(with_unknown_conditions(&json!({}), "T1", "T3"), None);
    }
}
