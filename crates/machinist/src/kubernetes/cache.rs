//! Objects of one kind in memory, kept in step by one watch.
//!
//! What a process itself writes goes into the cache at once, so that its next decision knows of it, however late
//! the watch is. Revisions tell which of two versions of an object is the newer one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// How long to wait after a watch failed, at most.
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// All objects of a kind, by name (`namespace/name` for those in a namespace). A clone is the same cache.
pub(crate) struct Cache<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    objects: RwLock<BTreeMap<String, Arc<K>>>,
    /// Counts changes; 0 until the first list is complete.
    changes: watch::Sender<u64>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K> fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("changes", &*self.inner.changes.borrow())
            .finish_non_exhaustive()
    }
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        let inner = Inner { objects: RwLock::default(), changes: watch::Sender::new(0) };
        Self { inner: Arc::new(inner) }
    }
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Follows the objects of an API for ever. `trim` takes away what nobody reads.
    pub(crate) async fn reflect(self, api: Api<K>, config: watcher::Config, trim: fn(&mut K)) {
        let mut stream = std::pin::pin!(watcher::watcher(api, config));
        let mut listed = BTreeMap::new();
        let mut failures = 0u32;
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    failures = 0;
                    self.handle_event(event, &mut listed, trim);
                }
                Err(error) => {
                    failures += 1;
                    let kind = K::kind(&());
                    // The first failure of a watch is everyday life: a server that restarts.
                    if failures == 3 {
                        tracing::warn!(%kind, %error, "cannot watch; trying again");
                    }
                    let pause = Duration::from_millis(100 * u64::from(failures.min(20)));
                    tokio::time::sleep(pause.min(MAX_BACKOFF)).await;
                }
            }
        }
    }

    /// For a kind that the home does not serve: there are none, until it does.
    pub(crate) fn mark_empty(self) {
        self.notify();
    }

    fn handle_event(
        &self,
        event: Event<K>,
        listed: &mut BTreeMap<String, Arc<K>>,
        trim: fn(&mut K),
    ) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(mut object) => {
                trim(&mut object);
                listed.insert(key(&object), Arc::new(object));
            }
            Event::InitDone => self.replace(std::mem::take(listed)),
            Event::Apply(mut object) => {
                trim(&mut object);
                self.upsert(object);
            }
            Event::Delete(object) => self.remove(&object),
        }
    }

    /// A complete list has come. What was written meanwhile is newer than the list.
    fn replace(&self, mut listed: BTreeMap<String, Arc<K>>) {
        let mut objects = self.inner.objects.write().unwrap_or_else(PoisonError::into_inner);
        for (name, new) in &mut listed {
            if let Some(old) = objects.get(name).filter(|old| is_newer(old.as_ref(), new)) {
                *new = Arc::clone(old);
            }
        }
        *objects = listed;
        drop(objects);
        self.notify();
    }

    /// Takes an object that the watch brought or that we have just written, unless a newer version of it is known.
    pub(crate) fn upsert(&self, object: K) {
        let mut objects = self.inner.objects.write().unwrap_or_else(PoisonError::into_inner);
        let name = key(&object);
        match objects.get(&name) {
            Some(old) if !is_newer(&object, old) => return,
            _ => objects.insert(name, Arc::new(object)),
        };
        drop(objects);
        self.notify();
    }

    fn remove(&self, object: &K) {
        let mut objects = self.inner.objects.write().unwrap_or_else(PoisonError::into_inner);
        let name = key(object);
        // One of the same name that was made since is another one.
        if objects.get(&name).is_some_and(|known| is_newer(known.as_ref(), object)) {
            return;
        }
        objects.remove(&name);
        drop(objects);
        self.notify();
    }

    fn notify(&self) {
        self.inner.changes.send_modify(|count| *count += 1);
    }

    /// Wakes whoever waits after each change. The value is 0 until the first list is complete.
    #[must_use]
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// Waits for the first list.
    pub(crate) async fn wait_until_ready(&self) {
        // The sender lives as long as we do.
        let _ = self.subscribe().wait_for(|count| *count > 0).await;
    }

    /// How many objects there are.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.inner.objects.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// All objects by name.
    #[must_use]
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        let objects = self.inner.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.values().cloned().collect()
    }

    /// One object that is in a namespace.
    #[must_use]
    pub(crate) fn get_in(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.get(&format!("{namespace}/{name}"))
    }

    /// One object.
    #[must_use]
    pub(crate) fn get(&self, name: &str) -> Option<Arc<K>> {
        let objects = self.inner.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.get(name).cloned()
    }
}

/// What an object is known by: its name, and its namespace where it is in one.
fn key<K: Resource>(object: &K) -> String {
    let meta = object.meta();
    let name = meta.name.clone().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    }
}

/// Whether one version of an object is newer than another: revisions grow. Those that are no numbers cannot be
/// compared; then what came last counts.
fn is_newer<K: Resource>(a: &K, b: &K) -> bool {
    let revision = |object: &K| object.meta().resource_version.as_ref()?.parse::<u64>().ok();
    match (revision(a), revision(b)) {
        (Some(a), Some(b)) => a > b,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;

    fn node(name: &str, revision: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node.metadata.resource_version = Some(revision.to_owned());
        node
    }

    fn revision(cache: &Cache<Node>, name: &str) -> Option<String> {
        cache.get(name)?.metadata.resource_version.clone()
    }

    fn keep(_: &mut Node) {}

    #[test]
    fn an_older_version_never_replaces_a_newer_one() {
        let cache = Cache::default();
        cache.upsert(node("a", "10"));
        cache.upsert(node("a", "9"));
        assert_eq!(revision(&cache, "a").as_deref(), Some("10"));
        let mut listed = BTreeMap::new();
        cache.handle_event(Event::Init, &mut listed, keep);
        cache.handle_event(Event::InitApply(node("a", "8")), &mut listed, keep);
        cache.handle_event(Event::InitApply(node("b", "7")), &mut listed, keep);
        cache.handle_event(Event::InitDone, &mut listed, keep);
        assert_eq!(revision(&cache, "a").as_deref(), Some("10"));
        assert_eq!(revision(&cache, "b").as_deref(), Some("7"));
    }

    #[test]
    fn what_is_deleted_goes_and_what_was_made_since_stays() {
        let cache = Cache::default();
        cache.upsert(node("a", "10"));
        cache.remove(&node("a", "9"));
        assert!(cache.get("a").is_some());
        cache.remove(&node("a", "11"));
        assert!(cache.get("a").is_none());
    }

    #[test]
    fn a_list_without_an_object_removes_it() {
        let cache = Cache::default();
        cache.upsert(node("a", "10"));
        cache.handle_event(Event::InitDone, &mut BTreeMap::new(), keep);
        assert!(cache.all().is_empty());
    }
}
