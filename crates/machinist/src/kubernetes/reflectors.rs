//! Starts the watches of a set of caches, and follows the set as a whole.
//!
//! The controller, the operator and the server each have a struct of caches; this is the one way to start them, to wait for
//! them and to hear of changes.

use std::fmt;

use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use machinist_hub::failure_log::FailureLog;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::cache::{Cache, Served, strip_managed_fields};

/// Starts watches; they end with the tasks.
pub(crate) struct Reflectors<'a> {
    client: Client,
    failures: FailureLog,
    tasks: &'a mut JoinSet<()>,
}

impl<'a> Reflectors<'a> {
    /// Spawns watches into `tasks`; they report to `failures`.
    pub(crate) fn new(client: Client, failures: FailureLog, tasks: &'a mut JoinSet<()>) -> Self {
        Self { client, failures, tasks }
    }

    /// Watches all objects of a kind that has to be served.
    pub(crate) fn watch_all<K: Reflected>(&mut self, cache: &Cache<K>) {
        let all = Api::all(self.client.clone());
        self.watch(cache, all, watcher::Config::default(), strip_managed_fields);
    }

    /// Watches all objects of a kind that may not be served yet. Until it is, the cache is empty and ready.
    pub(crate) fn watch_optional<K: Reflected>(&mut self, cache: &Cache<K>) {
        let all = Api::all(self.client.clone());
        let config = watcher::Config::default();
        self.spawn(cache, all, config, strip_managed_fields, Served::Optional);
    }

    /// Watches some objects of a kind. `trim` drops the fields that nobody reads.
    pub(crate) fn watch<K: Reflected>(
        &mut self,
        cache: &Cache<K>,
        api: Api<K>,
        config: watcher::Config,
        trim: fn(&mut K),
    ) {
        self.spawn(cache, api, config, trim, Served::Required);
    }

    fn spawn<K: Reflected>(
        &mut self,
        cache: &Cache<K>,
        api: Api<K>,
        config: watcher::Config,
        trim: fn(&mut K),
        served: Served,
    ) {
        let failures = self.failures.clone();
        self.tasks.spawn(cache.clone().reflect_served(api, config, trim, served, failures));
    }
}

/// A kind that a cache can hold.
pub(crate) trait Reflected:
    Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static
{
}
impl<K> Reflected for K where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static
{
}

/// A cache of any kind.
pub(crate) trait AnyCache: Send + Sync {
    /// As [`Cache::subscribe`].
    fn changes(&self) -> watch::Receiver<u64>;
}

impl<K: Reflected> AnyCache for Cache<K> {
    fn changes(&self) -> watch::Receiver<u64> {
        self.subscribe()
    }
}

/// Waits until every cache has its first list.
pub(crate) async fn wait_until_ready(changes: Vec<watch::Receiver<u64>>) {
    for mut cache in changes {
        // A cache that is gone has nobody who waits for it.
        let _ = cache.wait_for(|count| *count > 0).await;
    }
}

/// The change counters of several caches.
pub(crate) fn changes_of(caches: &[&dyn AnyCache]) -> Vec<watch::Receiver<u64>> {
    caches.iter().map(|cache| cache.changes()).collect()
}

/// Changes whenever one of several receivers does, for as long as somebody listens.
pub(crate) fn merge_changes(changes: Vec<watch::Receiver<u64>>) -> watch::Receiver<u64> {
    let sender = watch::Sender::new(0);
    let receiver = sender.subscribe();
    for mut one in changes {
        let sender = sender.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    changed = one.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                }
                sender.send_modify(|count| *count += 1);
            }
        });
    }
    receiver
}

/// Publishes a value, and wakes its receivers only if it is another one.
pub(crate) fn publish<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|known| {
        let is_new = *known != value;
        *known = value;
        is_new
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_change_of_many_wakes_the_merged_receiver() {
        let (a, b) = (watch::Sender::new(0), watch::Sender::new(0));
        let mut merged = merge_changes(vec![a.subscribe(), b.subscribe()]);
        b.send_replace(1);
        merged.changed().await.unwrap();
        a.send_replace(1);
        merged.changed().await.unwrap();
        wait_until_ready(vec![a.subscribe(), b.subscribe()]).await;
    }

    #[test]
    fn the_same_value_wakes_nobody() {
        let sender = watch::Sender::new(1);
        let receiver = sender.subscribe();
        publish(&sender, 1);
        assert!(!receiver.has_changed().unwrap());
        publish(&sender, 2);
        assert!(receiver.has_changed().unwrap());
    }
}
