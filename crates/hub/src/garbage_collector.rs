//! The garbage collector: deletes the dependents of deleted objects and the contents of deleted
//! namespaces.
//!
//! One background task of [`Hub`] watches all writes and keeps an index of owners. Each change
//! enqueues the affected keys; reconciling a key is idempotent.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::deletion::{self, DeletionStep, FOREGROUND_FINALIZER, ORPHAN_FINALIZER, owner_uids};
use crate::hub::{Hub, now_rfc3339};
use crate::kind_registry::ResourceKind;
use crate::object::{self, finalizers, is_deleting, metadata_str};
use crate::request::DeletionPropagation;
use crate::store::{
    CommitError, Precondition, RevisionError, StoreEntry, StoreEvent, StoreEventKind, StoreOp,
    StoreWatch,
};

/// Key prefix of all objects.
const ALL_OBJECTS_PREFIX: &str = "/";

/// Runs until the hub stops.
pub(crate) async fn run(hub: Hub) {
    let stop = hub.cancellation_token();
    loop {
        let mut collector = GarbageCollector { hub: hub.clone(), index: OwnerIndex::default() };
        let follow = async {
            let mut watch = collector.list_and_watch().await?;
            loop {
                let event = watch.next().await?;
                collector.handle_event(&event).await;
            }
        };
        let ended: Result<(), RevisionError> = tokio::select! {
            () = stop.cancelled() => return,
            ended = follow => ended,
        };
        match ended {
            Ok(()) | Err(RevisionError::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "garbage collector lost its watch and lists again");
            }
        }
    }
}

/// Dependents by owner UID, and owners by dependent.
#[derive(Debug, Default)]
struct OwnerIndex {
    owners: HashMap<String, Vec<String>>,
    owned: HashMap<String, BTreeSet<String>>,
}

impl OwnerIndex {
    fn set(&mut self, key: &str, uids: Vec<String>) {
        for uid in self.owners.remove(key).unwrap_or_default() {
            if let Some(keys) = self.owned.get_mut(&uid) {
                keys.remove(key);
                if keys.is_empty() {
                    self.owned.remove(&uid);
                }
            }
        }
        if uids.is_empty() {
            return;
        }
        for uid in &uids {
            self.owned.entry(uid.clone()).or_default().insert(key.to_owned());
        }
        self.owners.insert(key.to_owned(), uids);
    }

    fn owned_by(&self, uid: &str) -> Vec<String> {
        self.owned.get(uid).into_iter().flatten().cloned().collect()
    }
}

struct GarbageCollector {
    hub: Hub,
    index: OwnerIndex,
}

impl GarbageCollector {
    /// Reconciles every object once, then follows the watch.
    async fn list_and_watch(&mut self) -> Result<StoreWatch, RevisionError> {
        let store = self.hub.store().clone();
        let page = store.list(ALL_OBJECTS_PREFIX, None, None);
        let watch = store.watch(ALL_OBJECTS_PREFIX, page.revision)?;
        let mut keys = BTreeSet::new();
        for entry in &page.entries {
            self.index_written(entry, &mut keys);
        }
        self.reconcile_keys(keys).await;
        Ok(watch)
    }

    async fn handle_event(&mut self, event: &StoreEvent) {
        let mut keys = BTreeSet::new();
        match event.kind {
            StoreEventKind::Put => self.index_written(&event.entry, &mut keys),
            StoreEventKind::Delete => self.index_deleted(&event.entry, &mut keys),
        }
        self.reconcile_keys(keys).await;
    }

    /// Indexes a written object and returns the keys to reconcile.
    fn index_written(&mut self, entry: &StoreEntry, keys: &mut BTreeSet<String>) {
        let owned = may_contain(entry, "\"ownerReferences\"");
        if !owned {
            self.index.set(&entry.key, Vec::new());
        }
        if !owned && !may_contain(entry, "\"deletionTimestamp\"") {
            return;
        }
        let Ok(object) = object::decode(&entry.value, entry.revision) else { return };
        self.index
            .set(&entry.key, owner_uids(&object).into_iter().map(ToOwned::to_owned).collect());
        keys.insert(entry.key.to_string());
    }

    /// Returns the keys to reconcile after a removal: dependents, and owners that waited for it.
    fn index_deleted(&mut self, entry: &StoreEntry, keys: &mut BTreeSet<String>) {
        self.index.set(&entry.key, Vec::new());
        let Ok(object) = object::decode(&entry.value, entry.revision) else { return };
        keys.extend(self.index.owned_by(metadata_str(&object, "uid")));
        for owner in object["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
            keys.extend(self.owner_key(owner, &object));
        }
        let namespace = metadata_str(&object, "namespace");
        if !namespace.is_empty() {
            keys.insert(format!("/core/namespaces/-/{namespace}"));
        }
    }

    /// Returns the storage key of an owner; `None` if its kind is not served here.
    fn owner_key(&self, owner: &Value, object: &Value) -> Option<String> {
        let kind = self.hub.kind_of(owner)?;
        let namespace = Some(metadata_str(object, "namespace"));
        Some(object::storage_key(&kind, namespace, owner["name"].as_str().unwrap_or_default()))
    }

    async fn reconcile_keys(&self, keys: BTreeSet<String>) {
        for key in keys {
            let Some(entry) = self.hub.store().get(&key) else { continue };
            let Ok(object) = object::decode(&entry.value, entry.revision) else { continue };
            let Some(kind) = self.hub.kind_of(&object) else { continue };
            self.reconcile(&kind, &entry, &object).await;
        }
    }

    async fn reconcile(&self, kind: &ResourceKind, entry: &StoreEntry, object: &Value) {
        let names = finalizers(object);
        let uid = metadata_str(object, "uid");
        if is_deleting(object) && kind.built_in && kind.kind == "Namespace" {
            self.delete_namespace_contents(entry, object).await;
        } else if is_deleting(object) && names.contains(&FOREGROUND_FINALIZER) {
            let owned = self.index.owned_by(uid);
            for key in &owned {
                self.delete(key).await;
            }
            if !owned.iter().any(|key| self.hub.store().get(key).is_some()) {
                self.write(kind, entry, deletion::without_finalizer(object, FOREGROUND_FINALIZER))
                    .await;
            }
        } else if is_deleting(object) && names.contains(&ORPHAN_FINALIZER) {
            for key in self.index.owned_by(uid) {
                self.remove_owner_reference(&key, uid).await;
            }
            self.write(kind, entry, deletion::without_finalizer(object, ORPHAN_FINALIZER)).await;
        } else if !is_deleting(object) && self.is_orphan(object) {
            self.delete(&entry.key).await;
        }
    }

    /// Whether the object has owner references and none of its owners exists.
    fn is_orphan(&self, object: &Value) -> bool {
        let references = object["metadata"]["ownerReferences"].as_array();
        let mut references = references.into_iter().flatten().peekable();
        references.peek().is_some()
            && references.all(|owner| {
                let Some(key) = self.owner_key(owner, object) else { return false };
                let found = self.hub.store().get(&key);
                let found =
                    found.and_then(|entry| object::decode(&entry.value, entry.revision).ok());
                found.is_none_or(|found| owner["uid"] != metadata_str(&found, "uid"))
            })
    }

    /// Deletes the contents of a namespace, and the namespace itself once it is empty.
    async fn delete_namespace_contents(&self, entry: &StoreEntry, object: &Value) {
        let name = metadata_str(object, "name");
        let mut left = 0;
        let kinds = self.hub.inner.kinds.read();
        for kind in kinds.registry.kinds().filter(|kind| kind.namespaced) {
            let prefix = object::storage_key(kind, Some(name), "");
            for content in self.hub.store().list(&prefix, None, None).entries {
                left += 1;
                self.delete(&content.key).await;
            }
        }
        if left == 0 && finalizers(object).is_empty() {
            self.remove(entry).await;
        }
    }

    /// Deletes an object as a client would.
    async fn delete(&self, key: &str) {
        let Some(entry) = self.hub.store().get(key) else { return };
        // What cannot be decoded has no finalizers that anyone could wait for.
        let Ok(object) = object::decode(&entry.value, entry.revision) else {
            return self.remove(&entry).await;
        };
        let Some(kind) = self.hub.kind_of(&object) else { return };
        if is_deleting(&object) {
            return;
        }
        match deletion::decide_deletion(
            &kind,
            &object,
            DeletionPropagation::Background,
            &now_rfc3339(),
        ) {
            DeletionStep::Remove => self.remove(&entry).await,
            DeletionStep::MarkForDeletion(marked) => self.write(&kind, &entry, marked).await,
            DeletionStep::NoChange => {}
        }
    }

    async fn remove_owner_reference(&self, key: &str, uid: &str) {
        let Some(entry) = self.hub.store().get(key) else { return };
        let Ok(object) = object::decode(&entry.value, entry.revision) else { return };
        let Some(kind) = self.hub.kind_of(&object) else { return };
        self.write(&kind, &entry, deletion::without_owner(&object, uid)).await;
    }

    async fn remove(&self, entry: &StoreEntry) {
        let expect = Precondition::Revision(entry.revision);
        self.commit(StoreOp::Delete { key: entry.key.to_string(), expect }).await;
        if entry.key.starts_with("/core/serviceaccounts/") {
            self.hub.inner.recheck_credentials(); // its tokens end with it
        }
    }

    async fn write(&self, kind: &ResourceKind, entry: &StoreEntry, new: Value) {
        if deletion::is_ready_for_removal(kind, &new) {
            return self.remove(entry).await;
        }
        let expect = Precondition::Revision(entry.revision);
        if let Ok(value) = object::encode(&new) {
            self.commit(StoreOp::Put { key: entry.key.to_string(), value, expect }).await;
        }
    }

    /// On a conflict the other write triggers another reconcile.
    async fn commit(&self, op: StoreOp) {
        let written = match self.hub.store().commit(vec![op]).await {
            Ok(_) | Err(CommitError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        };
        self.hub.failures().record("collect garbage", "", written);
    }
}

/// Whether the raw value contains a text; cheaper than decoding every object.
fn may_contain(entry: &StoreEntry, text: &str) -> bool {
    entry.value.windows(text.len()).any(|window| window == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_follows_owner_references() {
        let mut index = OwnerIndex::default();
        index.set("/a", vec!["u".into(), "v".into()]);
        index.set("/b", vec!["u".into()]);
        assert_eq!(index.owned_by("u"), ["/a", "/b"]);
        index.set("/a", vec!["v".into()]);
        assert_eq!(index.owned_by("u"), ["/b"]);
        index.set("/b", Vec::new());
        assert_eq!(index.owned_by("u"), Vec::<String>::new());
        assert_eq!(index.owned_by("v"), ["/a"]);
    }
}
