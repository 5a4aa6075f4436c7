//! Writes the rules that ClusterRoles gather from others into these roles, so that people see them, and makes open watches
//! check their rights after a change.
//!
//! Decisions do not wait for it: [`crate::rbac::index`] gathers rules itself. A background task of [`crate::Hub`].

use std::sync::Arc;

use serde_json::Value;

use crate::hub::Hub;
use crate::object;
use crate::object_limits::MAX_OBJECT_BYTES;
use crate::rbac::KEY_PREFIX;
use crate::rbac::index::Rules;
use crate::store::{CommitError, Precondition, RevisionError, StoreOp};

/// Runs until the hub stops.
pub(crate) async fn run(hub: Hub) {
    let stop = hub.cancellation_token();
    loop {
        let follow = async {
            let mut watch = hub.store().watch(KEY_PREFIX, hub.store().revision())?;
            write_gathered_rules(&hub).await;
            loop {
                watch.next().await?;
                while watch.try_next()?.is_some() {}
                hub.inner.recheck_credentials();
                write_gathered_rules(&hub).await;
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

async fn write_gathered_rules(hub: &Hub) {
    let gathered: Vec<(String, Rules)> = {
        let index = hub.inner.rbac.read();
        index.aggregated().map(|(name, rules)| (name.clone(), Arc::clone(rules))).collect()
    };
    for (name, rules) in gathered {
        write_rules(hub, &name, &rules).await;
    }
}

/// On a conflict the other write triggers another round.
async fn write_rules(hub: &Hub, name: &str, rules: &Rules) {
    let key = format!("{KEY_PREFIX}clusterroles/-/{name}");
    let Some(entry) = hub.store().get(&key) else { return };
    let Ok(old) = object::decode(&entry.value, entry.revision) else { return };
    let rules: Vec<Value> = rules.iter().map(|rule| rule.to_json()).collect();
    if old["rules"].as_array().map_or(&[][..], Vec::as_slice) == rules {
        return;
    }
    let mut new = old;
    new["rules"] = rules.into();
    let Ok(value) = object::encode(&new) else { return };
    if value.len() > MAX_OBJECT_BYTES {
        tracing::warn!(name, "a ClusterRole gathers too many rules to show them");
        return;
    }
    let expect = Precondition::Revision(entry.revision);
    match hub.store().commit(vec![StoreOp::Put { key, value, expect }]).await {
        Ok(_) | Err(CommitError::Conflict { .. }) => {}
        Err(error) => tracing::debug!(%error, name, "cannot write gathered rules"),
    }
}
