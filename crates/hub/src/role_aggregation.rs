//! Writes the rules that ClusterRoles gather from others into these roles, so that people see them, and makes open watches
//! check their rights after a change.
//!
//! Decisions do not wait for it: [`crate::rbac::index`] gathers rules itself. A background task of [`crate::Hub`].

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use crate::hub::Hub;
use crate::object;
use crate::object_limits::MAX_OBJECT_BYTES;
use crate::rbac::KEY_PREFIX;
use crate::rbac::index::Rules;
use crate::store::{CommitError, Precondition, RevisionError, StoreOp};

/// The task under which failed writes are reported.
const TASK: &str = "write the rules that a ClusterRole gathers";
/// The wait after a failed write, unless a role changes before.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Runs until the hub stops.
pub(crate) async fn run(hub: Hub) {
    let stop = hub.cancellation_token();
    loop {
        let follow = async {
            let mut watch = hub.store().watch(KEY_PREFIX, hub.store().revision())?;
            loop {
                let wait =
                    if write_gathered_rules(&hub).await { Duration::MAX } else { RETRY_DELAY };
                let Ok(changed) = timeout(wait, watch.next()).await else { continue };
                changed?;
                while watch.try_next()?.is_some() {}
                hub.inner.recheck_credentials();
            }
        };
        let ended: Result<(), RevisionError> = tokio::select! {
            () = stop.cancelled() => return,
            ended = follow => ended,
        };
        match ended {
            Ok(()) | Err(RevisionError::Closed) => return,
            Err(error) => tracing::warn!(%error, "role aggregation lost its watch and lists again"),
        }
    }
}

/// Returns whether nothing is left to write.
async fn write_gathered_rules(hub: &Hub) -> bool {
    let gathered: Vec<(String, Rules)> = {
        let index = hub.inner.rbac.read();
        index.aggregated().map(|(name, rules)| (name.clone(), Arc::clone(rules))).collect()
    };
    let mut all_written = true;
    for (name, rules) in gathered {
        let written = write_rules(hub, &name, &rules).await;
        all_written &= hub.failures().record(TASK, &name, written).is_some();
    }
    all_written
}

/// On a conflict the other write triggers another round.
async fn write_rules(hub: &Hub, name: &str, rules: &Rules) -> Result<(), String> {
    let key = format!("{KEY_PREFIX}clusterroles/-/{name}");
    let Some(entry) = hub.store().get(&key) else { return Ok(()) };
    let Ok(old) = object::decode(&entry.value, entry.revision) else { return Ok(()) };
    let rules: Vec<Value> = rules.iter().map(|rule| rule.to_json()).collect();
    if old["rules"].as_array().map_or(&[][..], Vec::as_slice) == rules {
        return Ok(());
    }
    let mut new = old;
    new["rules"] = rules.into();
    let Ok(value) = object::encode(&new) else { return Ok(()) };
    if value.len() > MAX_OBJECT_BYTES {
        return Err(format!("they have {} bytes, limit {MAX_OBJECT_BYTES}", value.len()));
    }
    let expect = Precondition::Revision(entry.revision);
    match hub.store().commit(vec![StoreOp::Put { key, value, expect }]).await {
        Ok(_) | Err(CommitError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
