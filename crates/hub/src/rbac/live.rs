//! The index of a store, always as new as the store: a change that was acknowledged counts for the next request.
//!
//! It follows the store by a watch that it reads when somebody asks, so there is nothing to wait for. Held by the hub.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::KEY_PREFIX;
use super::index::RbacIndex;
use crate::object;
use crate::store::{RevisionError, Store, StoreEntry, StoreEventKind, StoreWatch};

/// The roles and bindings of a store.
#[derive(Debug)]
pub(crate) struct LiveRbac {
    store: Store,
    index: RwLock<RbacIndex>,
    watch: Mutex<Option<StoreWatch>>,
    /// The revision up to which the index has everything.
    seen: AtomicU64,
    /// Changes with every change of the index.
    generation: AtomicU64,
}

impl LiveRbac {
    /// Reads all roles and bindings of a store.
    pub(crate) fn new(store: Store) -> Self {
        let live = Self {
            store,
            index: RwLock::default(),
            watch: Mutex::new(None),
            seen: AtomicU64::new(0),
            generation: AtomicU64::new(0),
        };
        live.refresh();
        live
    }

    /// The current index.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, RbacIndex> {
        self.refresh();
        self.index.read()
    }

    /// A number that changes whenever rights may have changed.
    pub(crate) fn generation(&self) -> u64 {
        self.refresh();
        self.generation.load(Ordering::Acquire)
    }

    fn refresh(&self) {
        let current = self.store.revision();
        if self.seen.load(Ordering::Acquire) >= current {
            return;
        }
        let mut watch = self.watch.lock();
        loop {
            let Some(open) = watch.as_mut() else {
                *watch = self.load();
                if watch.is_none() {
                    return; // the next request tries again
                }
                continue;
            };
            match open.try_next() {
                Ok(Some(event)) => {
                    let is_there = event.kind == StoreEventKind::Put;
                    set(&mut self.index.write(), &event.entry, is_there);
                    self.generation.fetch_add(1, Ordering::AcqRel);
                }
                Ok(None) => break,
                Err(RevisionError::Closed) => return,
                Err(_) => *watch = None,
            }
        }
        self.seen.fetch_max(current, Ordering::AcqRel);
    }

    /// Reads everything again. `None` if the history was compacted meanwhile.
    fn load(&self) -> Option<StoreWatch> {
        let page = self.store.list(KEY_PREFIX, None, None);
        let watch = self.store.watch(KEY_PREFIX, page.revision).ok()?;
        let mut index = RbacIndex::default();
        page.entries.iter().for_each(|entry| set(&mut index, entry, true));
        *self.index.write() = index;
        self.generation.fetch_add(1, Ordering::AcqRel);
        Some(watch)
    }
}

/// An object that cannot be decoded grants nothing.
fn set(index: &mut RbacIndex, entry: &StoreEntry, is_there: bool) {
    let object = is_there.then(|| object::decode(&entry.value, entry.revision).ok()).flatten();
    index.set(&entry.key, object.as_ref(), entry.value.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::authorizer::RequestAttributes;
    use crate::rbac::index::Subject;
    use crate::store::{Precondition, StoreOp, StoreOptions};
    use serde_json::{Value, json};

    async fn put(store: &Store, key: &str, object: Value) {
        let value = object::encode(&object).unwrap();
        let key = format!("{KEY_PREFIX}{key}");
        let op = StoreOp::Put { key, value, expect: Precondition::Any };
        store.commit(vec![op]).await.unwrap();
    }

    fn may_get(live: &LiveRbac) -> bool {
        let request =
            RequestAttributes { verb: "get".into(), resource: "pods".into(), ..Default::default() };
        live.read().allows(&Subject { user: "ann", groups: Vec::new() }, &request)
    }

    #[tokio::test]
    async fn a_write_counts_at_once_even_if_the_history_is_gone() {
        let store = Store::in_memory(StoreOptions::default());
        let live = LiveRbac::new(store.clone());
        let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        put(&store, "clusterroles/-/r", json!({"rules": rules})).await;
        assert!(!may_get(&live));
        let before = live.generation();
        let binding = json!({
            "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "User", "name": "ann"}],
        });
        put(&store, "clusterrolebindings/-/b", binding).await;
        assert!(may_get(&live));
        assert_ne!(live.generation(), before);
        put(&store, "clusterroles/-/r", json!({"rules": []})).await;
        store.compact(store.revision());
        assert!(!may_get(&live));
    }
}
