//! Serves the kinds of definitions that clients create: accepts their names, compiles their schemas, and deletes their
//! objects when they go.
//!
//! A background task of [`Hub`], and the only writer of the served kinds. Each round looks at all definitions, so that a
//! missed event costs nothing; what did not change is not compiled again. What a definition may be is decided by
//! [`crate::definition`].

mod cleanup;
mod compiled;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::definition::lifecycle::{CLEANUP_FINALIZER, Condition, condition_holds, set_condition};
use crate::definition::names::{UsedNames, accept};
use crate::definition::{self, KEY_PREFIX};
use crate::hub::{Hub, now_rfc3339};
use crate::object::{self, finalizers, is_deleting, metadata_str};
use crate::store::{CommitError, Precondition, RevisionError, StoreEntry, StoreOp};
use compiled::CompiledDefinition;

/// How often a deletion that waits for objects looks again.
const CLEANUP_INTERVAL: Duration = Duration::from_millis(500);

/// What is kept between rounds.
#[derive(Default)]
pub(crate) struct DefinitionLoop {
    compiled: HashMap<String, Arc<CompiledDefinition>>,
}

/// A stored definition.
struct StoredDefinition {
    entry: StoreEntry,
    object: Value,
}

/// Runs until the hub stops.
pub(crate) async fn run(hub: Hub, mut state: DefinitionLoop) {
    let stop = hub.cancellation_token();
    loop {
        let follow = async {
            let mut watch = hub.store().watch(KEY_PREFIX, hub.store().revision())?;
            let mut requests = hub.inner.kinds.rounds();
            loop {
                requests.mark_unchanged();
                let is_waiting = state.round(&hub).await;
                let pause = async {
                    match is_waiting {
                        true => tokio::time::sleep(CLEANUP_INTERVAL).await,
                        false => std::future::pending().await,
                    }
                };
                tokio::select! {
                    event = watch.next() => drop(event?),
                    Ok(()) = requests.changed() => {}
                    () = pause => {}
                }
                while watch.try_next()?.is_some() {}
            }
        };
        let ended: Result<(), RevisionError> = tokio::select! {
            () = stop.cancelled() => return,
            ended = follow => ended,
        };
        match ended {
            Ok(()) | Err(RevisionError::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "definitions lost their watch and are listed again");
            }
        }
    }
}

impl DefinitionLoop {
    /// Brings everything up to date. Returns whether a deletion waits for objects.
    pub(crate) async fn round(&mut self, hub: &Hub) -> bool {
        let requests = *hub.inner.kinds.rounds().borrow();
        let mut all = defined(hub, hub.store().list(KEY_PREFIX, None, None).entries);
        let mut is_waiting = false;
        for index in 0..all.len() {
            let used = used_names(&all, index);
            is_waiting |= settle_one(hub, &mut all[index], &used).await;
        }
        self.serve(hub, &all);
        hub.inner.kinds.settle(requests);
        is_waiting
    }

    /// Compiles what is new and serves what is established.
    fn serve(&mut self, hub: &Hub, all: &[StoredDefinition]) {
        let mut kept = HashMap::new();
        for StoredDefinition { object, .. } in all {
            if !condition_holds(object, "Established") {
                continue;
            }
            let uid = metadata_str(object, "uid").to_owned();
            let before = self.compiled.get(&uid).filter(|compiled| compiled.is_of(object));
            let compiled = match before {
                Some(compiled) => Ok(Arc::clone(compiled)),
                None => CompiledDefinition::new(object).map(Arc::new),
            };
            match compiled {
                Ok(compiled) => drop(kept.insert(uid, compiled)),
                // It was checked when it was written; another version may have other checks.
                Err(why) => {
                    let name = metadata_str(object, "name");
                    tracing::warn!(name, why, "cannot serve a CustomResourceDefinition");
                }
            }
        }
        let is_same = kept.len() == self.compiled.len()
            && kept
                .iter()
                .all(|(uid, new)| self.compiled.get(uid).is_some_and(|old| Arc::ptr_eq(old, new)));
        self.compiled = kept;
        if is_same {
            return;
        }
        let sorted: BTreeMap<&str, &CompiledDefinition> =
            self.compiled.values().map(|it| (it.name(), it.as_ref())).collect();
        hub.inner.kinds.replace(sorted.values().flat_map(|compiled| compiled.kinds().cloned()));
        // Open watches of a kind that changed end.
        hub.inner.recheck_credentials();
    }
}

/// The definitions that clients created, the oldest first.
fn defined(hub: &Hub, entries: Vec<StoreEntry>) -> Vec<StoredDefinition> {
    let own: BTreeSet<&str> = hub.inner.kinds.base().map(|kind| kind.group.as_str()).collect();
    let decoded = entries.into_iter().filter_map(|entry| {
        let object = object::decode(&entry.value, entry.revision).ok()?;
        // Neither the hub's own definitions, nor those of an older version that had more of them.
        let is_own = object["spec"]["group"].as_str().is_none_or(|group| own.contains(group));
        (!is_own).then_some(StoredDefinition { entry, object })
    });
    let mut all: Vec<StoredDefinition> = decoded.collect();
    all.sort_by_key(|it| it.entry.created);
    all
}

/// The names that the other definitions of the group have.
fn used_names(all: &[StoredDefinition], index: usize) -> UsedNames {
    let group = &all[index].object["spec"]["group"];
    let mut used = UsedNames::default();
    for (other, definition) in all.iter().enumerate() {
        if other != index && definition.object["spec"]["group"] == *group {
            used.add(&definition.object);
        }
    }
    used
}

/// Accepts the names of a definition, or goes on with its deletion. Returns whether that waits for objects.
async fn settle_one(hub: &Hub, stored: &mut StoredDefinition, used: &UsedNames) -> bool {
    let mut new = stored.object.clone();
    let now = now_rfc3339();
    let is_cleaned = is_deleting(&new) && finalizers(&new).contains(&CLEANUP_FINALIZER);
    let is_current = condition_holds(&new, "NamesAccepted")
        && new["spec"]["names"] == new["status"]["acceptedNames"];
    if is_cleaned {
        let left = match condition_holds(&new, "Established") {
            true => cleanup::delete_objects(hub, &new).await,
            false => 0,
        };
        let (holds, reason, message) = if left > 0 {
            (true, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
        } else {
            (false, "InstanceDeletionCompleted", "removed all instances")
        };
        set_condition(&mut new, Condition { type_: "Terminating", holds, reason, message }, &now);
        if left == 0 {
            let names = finalizers(&new).into_iter().filter(|name| *name != CLEANUP_FINALIZER);
            let names: Vec<String> = names.map(str::to_owned).collect();
            let names = (!names.is_empty()).then(|| names.into());
            object::set_metadata_field(&mut new, "finalizers", names);
        }
        write(hub, stored, new).await;
        return left > 0;
    }
    if !is_current {
        accept(&mut new, used, &now);
        write(hub, stored, new).await;
    }
    false
}

/// Writes a changed definition. On a conflict the other write starts another round.
async fn write(hub: &Hub, stored: &mut StoredDefinition, new: Value) {
    if object::is_unchanged(&stored.object, &new) {
        return;
    }
    let key = stored.entry.key.to_string();
    let expect = Precondition::Revision(stored.entry.revision);
    let is_removed = is_deleting(&new) && finalizers(&new).is_empty();
    let op = match object::encode(&new) {
        Ok(value) if !is_removed => StoreOp::Put { key, value, expect },
        _ => StoreOp::Delete { key, expect },
    };
    let written = hub.store().commit(vec![op]).await;
    let written = match written {
        Ok(done) => {
            if let Some(entry) = done.entries.into_iter().next().flatten() {
                stored.entry = entry;
            }
            stored.object = new;
            if is_removed {
                // Nothing is served of it any more.
                stored.object["status"]["conditions"] = Value::Null;
            }
            Ok(())
        }
        Err(CommitError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    };
    hub.failures().record("serve CustomResourceDefinitions", "", written);
}

/// The name of the version in which objects are stored.
fn storage_version(definition: &Value) -> Result<String, String> {
    definition::storage_version(definition)
        .map(str::to_owned)
        .ok_or_else(|| "no version is the storage version".to_owned())
}
