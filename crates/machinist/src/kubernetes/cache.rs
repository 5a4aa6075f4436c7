//! All objects of one kind in memory, kept current by one watch.
//!
//! Objects that a process writes go into its cache immediately, so that its next decision sees them, however late the watch
//! is. The resource version decides which of two versions of an object is newer. A complete list is the truth: the API
//! server may have been restored or replaced, and may count its resource versions from the start again. `reflectors` starts
//! the watches.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use machinist_hub::failure_log::FailureLog;
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::error_text::{error_text, refusal_code};

/// The longest wait after a failed watch.
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// A watch that fails less often in a row is not reported: an API server that restarts ends every watch.
const REPORTED_AFTER: u32 = 3;
/// How soon a kind that is not served is listed again; after that the wait doubles.
const NOT_SERVED_BACKOFF: Duration = Duration::from_secs(2);
const MAX_NOT_SERVED_BACKOFF: Duration = Duration::from_secs(60);
/// The status code for a kind that is not served.
const NOT_FOUND: u16 = 404;
/// The status code for a revision that the API server has forgotten.
const GONE: u16 = 410;
/// How an API server refuses a revision that it has not reached, whatever the status code.
const TOO_LARGE_REVISION: &str = "Too large resource version";

/// Drops the managed fields. They are half the size of an object, and only the operator's repair reports read them.
pub(crate) fn strip_managed_fields<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

/// Whether the API server has to serve the kind of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    /// A kind that is not served is a failure.
    Required,
    /// A kind that is not served has no objects until its definition is installed.
    Optional,
}

/// All objects of a kind, by name (`namespace/name` for those in a namespace). A clone is the same cache.
pub(crate) struct Cache<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    objects: RwLock<CachedObjects<K>>,
    /// Counts changes; 0 until the first list is complete.
    changes: watch::Sender<u64>,
}

struct CachedObjects<K> {
    by_name: BTreeMap<String, Arc<K>>,
    /// The names of the objects that this process wrote since a list began. The list may be older than they are.
    written_during_list: BTreeSet<String>,
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
        let objects =
            CachedObjects { by_name: BTreeMap::new(), written_during_list: BTreeSet::new() };
        let inner = Inner { objects: RwLock::new(objects), changes: watch::Sender::new(0) };
        Self { inner: Arc::new(inner) }
    }
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Keeps the cache current for ever. `trim` drops the fields that nobody reads; a watch that fails is reported to
    /// the log of the process.
    pub(crate) async fn reflect(
        self,
        api: Api<K>,
        config: watcher::Config,
        trim: fn(&mut K),
        failures: FailureLog,
    ) {
        self.reflect_served(api, config, trim, Served::Required, failures).await;
    }

    /// Like [`Self::reflect`], for a kind that may not be served.
    pub(super) async fn reflect_served(
        self,
        api: Api<K>,
        config: watcher::Config,
        trim: fn(&mut K),
        served: Served,
        failures: FailureLog,
    ) {
        let kind = K::kind(&());
        // A process may have several caches of one kind.
        let selector = config.field_selector.as_deref().or(config.label_selector.as_deref());
        let object = [Some(api.resource_url().trim_end_matches('?')), selector];
        let object = object.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let report = WatchReport { failures, object };
        let mut stream = std::pin::pin!(watcher::watcher(api.clone(), config.clone()));
        let mut listed = BTreeMap::new();
        let mut attempts = 0u32;
        let mut not_served_backoff = NOT_SERVED_BACKOFF;
        while let Some(event) = stream.next().await {
            let error = match event {
                Ok(event) => {
                    // Init only says that a list is about to be requested.
                    if !matches!(event, Event::Init) {
                        attempts = 0;
                        report.succeeded();
                    }
                    self.handle_event(event, &mut listed, trim);
                    continue;
                }
                Err(error) => error,
            };
            if has_lost_revision(&error) {
                // The watcher would ask for the same revision for ever.
                stream.set(watcher::watcher(api.clone(), config.clone()));
            }
            if served == Served::Optional
                && refusal_code(&error) == Some(NOT_FOUND)
                && self.len() == 0
            {
                if !self.is_ready() {
                    tracing::info!(%kind, "the API server does not serve this kind");
                    self.notify();
                }
                report.succeeded();
                tokio::time::sleep(not_served_backoff).await;
                not_served_backoff = (not_served_backoff * 2).min(MAX_NOT_SERVED_BACKOFF);
                continue;
            }
            attempts += 1;
            if attempts >= REPORTED_AFTER {
                report.failed(&error);
            }
            let pause = Duration::from_millis(100 * u64::from(attempts.min(20)));
            tokio::time::sleep(pause.min(MAX_BACKOFF)).await;
        }
    }

    fn handle_event(
        &self,
        event: Event<K>,
        listed: &mut BTreeMap<String, Arc<K>>,
        trim: fn(&mut K),
    ) {
        match event {
            Event::Init => {
                listed.clear();
                self.inner.objects.write().written_during_list.clear();
            }
            Event::InitApply(mut object) => {
                trim(&mut object);
                listed.insert(key(&object), Arc::new(object));
            }
            Event::InitDone => self.replace(std::mem::take(listed)),
            Event::Apply(mut object) => {
                trim(&mut object);
                self.insert(object, false);
            }
            Event::Delete(object) => self.remove(&object),
        }
    }

    /// Takes a complete list. Only objects that were written in the meantime are newer than the list.
    fn replace(&self, mut listed: BTreeMap<String, Arc<K>>) {
        let mut objects = self.inner.objects.write();
        for name in std::mem::take(&mut objects.written_during_list) {
            if let (Some(new), Some(old)) = (listed.get_mut(&name), objects.by_name.get(&name))
                && is_newer(old.as_ref(), new)
            {
                *new = Arc::clone(old);
            }
        }
        objects.by_name = listed;
        drop(objects);
        self.notify();
    }

    /// Stores an object that this process wrote, unless the cache has a newer version.
    pub(crate) fn upsert(&self, object: K) {
        self.insert(object, true);
    }

    fn insert(&self, object: K, is_written: bool) {
        let mut objects = self.inner.objects.write();
        let name = key(&object);
        if objects.by_name.get(&name).is_some_and(|old| !is_newer(&object, old)) {
            return;
        }
        if is_written {
            objects.written_during_list.insert(name.clone());
        }
        objects.by_name.insert(name, Arc::new(object));
        drop(objects);
        self.notify();
    }

    /// Removes an object that the watch reports as deleted, or that we deleted.
    pub(crate) fn remove(&self, object: &K) {
        let mut objects = self.inner.objects.write();
        let name = key(object);
        // A newer object of the same name is another object.
        if objects.by_name.get(&name).is_some_and(|known| is_newer(known.as_ref(), object)) {
            return;
        }
        objects.by_name.remove(&name);
        drop(objects);
        self.notify();
    }

    fn notify(&self) {
        self.inner.changes.send_modify(|count| *count += 1);
    }

    /// Changes with every change of the cache. The value is 0 until the first list is complete.
    #[must_use]
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// Whether the first list is complete.
    #[must_use]
    pub(crate) fn is_ready(&self) -> bool {
        *self.inner.changes.borrow() > 0
    }

    /// Waits for the first list.
    pub(crate) async fn wait_until_ready(&self) {
        // The sender lives as long as this cache.
        let _ = self.subscribe().wait_for(|count| *count > 0).await;
    }

    /// How many objects there are.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.inner.objects.read().by_name.len()
    }

    /// All objects by name.
    #[must_use]
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        let objects = self.inner.objects.read();
        objects.by_name.values().cloned().collect()
    }

    /// One object that is in a namespace.
    #[must_use]
    pub(crate) fn get_in(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.get(&format!("{namespace}/{name}"))
    }

    /// One object.
    #[must_use]
    pub(crate) fn get(&self, name: &str) -> Option<Arc<K>> {
        let objects = self.inner.objects.read();
        objects.by_name.get(name).cloned()
    }
}

/// How a watch reports. Its failure ends with it: a watch that nobody needs any more does not fail.
struct WatchReport {
    failures: FailureLog,
    object: String,
}

impl WatchReport {
    const TASK: &str = "list and watch";

    fn succeeded(&self) {
        self.failures.succeeded(Self::TASK, &self.object);
    }

    fn failed(&self, error: &watcher::Error) {
        self.failures.failed(Self::TASK, &self.object, &error_text(error));
    }
}

impl Drop for WatchReport {
    fn drop(&mut self) {
        self.failures.forget(Self::TASK, &self.object);
    }
}

/// Whether a watch cannot start because the API server does not know its revision: it forgot it, or it was restored or
/// replaced and has not reached it.
fn has_lost_revision(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            status.code == GONE || status.message.contains(TOO_LARGE_REVISION)
        }
        _ => false,
    }
}

/// The key of an object: its name, after its namespace if it has one.
fn key<K: Resource>(object: &K) -> String {
    let meta = object.meta();
    let name = meta.name.clone().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    }
}

/// Whether one version of an object is newer than another. Resource versions grow; where they are not numbers, the version
/// that came last wins.
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
        cache.handle_event(Event::Apply(node("a", "9")), &mut BTreeMap::new(), keep);
        assert_eq!(revision(&cache, "a").as_deref(), Some("10"));
    }

    #[test]
    fn an_object_that_was_written_during_a_list_is_newer_than_the_list() {
        let cache = Cache::default();
        cache.upsert(node("a", "9"));
        let mut listed = BTreeMap::new();
        cache.handle_event(Event::Init, &mut listed, keep);
        cache.upsert(node("a", "10"));
        cache.handle_event(Event::InitApply(node("a", "8")), &mut listed, keep);
        cache.handle_event(Event::InitApply(node("b", "7")), &mut listed, keep);
        cache.handle_event(Event::InitDone, &mut listed, keep);
        assert_eq!(revision(&cache, "a").as_deref(), Some("10"));
        assert_eq!(revision(&cache, "b").as_deref(), Some("7"));
    }

    #[test]
    fn the_list_of_a_restored_or_replaced_api_server_is_taken() {
        let cache = Cache::default();
        cache.upsert(node("a", "1000"));
        for list in ["8", "3"] {
            let mut listed = BTreeMap::new();
            cache.handle_event(Event::Init, &mut listed, keep);
            cache.handle_event(Event::InitApply(node("a", list)), &mut listed, keep);
            cache.handle_event(Event::InitDone, &mut listed, keep);
            assert_eq!(revision(&cache, "a").as_deref(), Some(list));
        }
        // Its watch goes on from there.
        cache.handle_event(Event::Apply(node("a", "4")), &mut BTreeMap::new(), keep);
        assert_eq!(revision(&cache, "a").as_deref(), Some("4"));
    }

    #[test]
    fn a_watch_at_an_unknown_revision_starts_with_a_list() {
        let refused = |code, message: &str| {
            let status = kube::core::Status::failure(message, "").with_code(code).boxed();
            watcher::Error::WatchStartFailed(kube::Error::Api(status))
        };
        assert!(has_lost_revision(&refused(410, "too old resource version: 1 (2)")));
        let too_large = "Timeout: Too large resource version: 9, current: 2";
        assert!(has_lost_revision(&refused(504, too_large)));
        assert!(!has_lost_revision(&refused(504, "Timeout")));
        assert!(!has_lost_revision(&refused(403, "forbidden")));
    }

    #[test]
    fn a_deletion_removes_an_object_but_not_its_newer_namesake() {
        let cache = Cache::default();
        cache.upsert(node("a", "10"));
        cache.remove(&node("a", "9"));
        assert!(cache.get("a").is_some());
        cache.remove(&node("a", "11"));
        assert!(cache.get("a").is_none());
    }

    /// The answers of an API server to a list and a watch.
    fn answer(request: &axum::extract::Request) -> axum::response::Response {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let body = match is_watch {
            // Nothing ever happens.
            true => axum::body::Body::from_stream(futures::stream::pending::<
                Result<axum::body::Bytes, std::convert::Infallible>,
            >()),
            false => axum::body::Body::from(
                serde_json::json!({
                    "apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "7"},
                    "items": [{"metadata": {"name": "a", "resourceVersion": "7"}}],
                })
                .to_string(),
            ),
        };
        axum::response::Response::new(body)
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_was_away_for_a_day_is_seen_again_within_seconds() {
        use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let (is_back, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (back, count) = (Arc::clone(&is_back), Arc::clone(&requests));
        let server = axum::Router::new().fallback(move |request: axum::extract::Request| {
            count.fetch_add(1, Ordering::Relaxed);
            let is_back = back.load(Ordering::Relaxed);
            async move {
                let mut response = answer(&request);
                if !is_back {
                    *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
                }
                response
            }
        });
        let client = kube::Client::new(server, "default");
        let (cache, failures) = (Cache::<Node>::default(), FailureLog::default());
        tokio::spawn(cache.clone().reflect_served(
            Api::all(client),
            watcher::Config::default(),
            keep,
            Served::Required,
            failures.clone(),
        ));
        tokio::time::sleep(DAY).await;
        let asked = requests.load(Ordering::Relaxed);
        let most = DAY.as_secs() / MAX_BACKOFF.as_secs();
        assert!((most / 2..most + 100).contains(&asked), "{asked} requests in a day");
        assert!(!cache.is_ready());
        is_back.store(true, Ordering::Relaxed);
        let seen = tokio::time::timeout(MAX_BACKOFF * 2, cache.wait_until_ready()).await;
        seen.expect("seen again");
        assert_eq!(revision(&cache, "a").as_deref(), Some("7"));
    }

    #[test]
    fn a_list_without_an_object_removes_it() {
        let cache = Cache::default();
        cache.upsert(node("a", "10"));
        cache.handle_event(Event::InitDone, &mut BTreeMap::new(), keep);
        assert!(cache.all().is_empty());
    }
}
