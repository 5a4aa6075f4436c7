//! The Secrets that templates are filled in with: the cluster's pull secret, and the password of the registry that it
//! may have inside. Each is watched, so that a new password reaches the machines at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::watcher;
use machinist_core::api::ControllerConfig;
use machinist_core::api::names::object;
use machinist_core::template::{AUTH_SECRET, PASSWORD_KEY, with_internal_registry};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::super::context::Context;
use crate::kubernetes::cache::{Cache, strip_managed_fields};

/// The type and the key of a pull secret.
const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";
pub(in super::super) const DOCKER_CONFIG_KEY: &str = ".dockerconfigjson";

/// The Secrets that were asked for last, and the watches that keep them in step.
#[derive(Debug)]
pub(super) struct SecretCaches {
    watched: BTreeMap<(String, String), WatchedSecret>,
    watches: JoinSet<()>,
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct WatchedSecret {
    cache: Cache<Secret>,
    tasks: [AbortHandle; 2],
}

impl Drop for WatchedSecret {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Default for SecretCaches {
    fn default() -> Self {
        Self { watched: BTreeMap::new(), watches: JoinSet::new(), changes: watch::Sender::new(0) }
    }
}

impl SecretCaches {
    /// Wakes whoever waits when one of them changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The pull secret that the ControllerConfig refers to, with the way into the cluster's own registry where there is
    /// one.
    pub(super) async fn pull_secret(
        &mut self,
        context: &Context,
        config: &ControllerConfig,
    ) -> Result<Option<Vec<u8>>, String> {
        // The tasks that ended with their Secrets need not be kept in mind.
        while self.watches.try_join_next().is_some() {}
        let Some(reference) = &config.spec.pull_secret else {
            self.watched.clear();
            return Ok(None);
        };
        let namespace = reference.namespace.as_deref().unwrap_or(object::CONFIG_NAMESPACE);
        let name = reference.name.as_deref().unwrap_or_default();
        let has_registry = context.caches.generate.has_internal_registry();
        self.watched.retain(|(in_, called), _| {
            (in_ == namespace && called == name) || (has_registry && called == AUTH_SECRET)
        });
        let secret = self.get(context, namespace, name).await.map_err(|error| {
            format!("cannot read the pull secret {namespace}/{name} of spec.pullSecret: {error}")
        })?;
        let found = secret.type_.as_deref().unwrap_or_default();
        if found != DOCKER_CONFIG {
            return Err(format!("expected secret type {DOCKER_CONFIG} found {found}"));
        }
        let Some(data) = value(&secret, DOCKER_CONFIG_KEY) else { return Ok(None) };
        if !has_registry {
            return Ok(Some(data.to_vec()));
        }
        let auth = self.get(context, &context.namespace, AUTH_SECRET).await.map_err(|error| {
            format!("could not get IRI auth secret {}/{AUTH_SECRET}: {error}", context.namespace)
        })?;
        let password = value(&auth, PASSWORD_KEY).unwrap_or_default();
        with_internal_registry(data, password, config).map(Some)
    }

    /// A Secret as the watch has it or, until the watch has begun, as the home has it.
    async fn get(
        &mut self,
        context: &Context,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<Secret>, String> {
        let key = (namespace.to_owned(), name.to_owned());
        let api: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
        if !self.watched.contains_key(&key) {
            self.start_watch(key.clone(), api.clone());
        }
        if let Some(followed) = self.watched.get(&key)
            && *followed.cache.subscribe().borrow() > 0
        {
            return followed.cache.get_in(namespace, name).ok_or_else(|| "it is not there".into());
        }
        context.write(api.get(name)).await.map(Arc::new).map_err(|error| error.to_string())
    }

    fn start_watch(&mut self, key: (String, String), api: Api<Secret>) {
        let cache: Cache<Secret> = Cache::default();
        let this = watcher::Config::default().fields(&format!("metadata.name={}", key.1));
        let following = self.watches.spawn(cache.clone().reflect(api, this, strip_managed_fields));
        let (mut changes, tell) = (cache.subscribe(), self.changes.clone());
        let telling = self.watches.spawn(async move {
            while changes.changed().await.is_ok() {
                tell.send_modify(|count| *count += 1);
            }
        });
        self.watched.insert(key, WatchedSecret { cache, tasks: [following, telling] });
    }
}

fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(key).map(|data| data.0.as_slice())
}
