//! The Secrets that templates need: the cluster's pull secret, and the password of the cluster's own registry. Each is
//! watched, so that a new password reaches the machines immediately.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::watcher;
use machinist_core::api::ControllerConfig;
use machinist_core::api::names::object;
use machinist_core::template::{AUTH_SECRET, PASSWORD_KEY, with_internal_registry};
use machinist_hub::failure_log::FailureLog;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::super::context::Context;
use crate::kubernetes::cache::{Cache, strip_managed_fields};

/// The type and the key of a pull secret.
const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";
pub(in super::super) const DOCKER_CONFIG_KEY: &str = ".dockerconfigjson";

/// The Secrets in use, and the watches that keep them current.
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
    /// Changes whenever one of the Secrets does.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The pull secret of the ControllerConfig, with the credentials of the cluster's own registry if it has one.
    pub(super) async fn pull_secret(
        &mut self,
        context: &Context,
        config: &ControllerConfig,
    ) -> Result<Option<Vec<u8>>, String> {
        // Reap the tasks of Secrets that are no longer watched.
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

    /// A Secret from the watch or, until the watch has its first list, from the API server.
    async fn get(
        &mut self,
        context: &Context,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<Secret>, String> {
        let key = (namespace.to_owned(), name.to_owned());
        let api: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
        if !self.watched.contains_key(&key) {
            self.start_watch(key.clone(), api.clone(), context.failures.clone());
        }
        if let Some(followed) = self.watched.get(&key)
            && *followed.cache.subscribe().borrow() > 0
        {
            return followed
                .cache
                .get_in(namespace, name)
                .ok_or_else(|| "it does not exist".into());
        }
        context.write(api.get(name)).await.map(Arc::new).map_err(|error| error.to_string())
    }

    fn start_watch(&mut self, key: (String, String), api: Api<Secret>, failures: FailureLog) {
        let cache: Cache<Secret> = Cache::default();
        let this = watcher::Config::default().fields(&format!("metadata.name={}", key.1));
        let reflect = cache.clone().reflect(api, this, strip_managed_fields, failures);
        let reflecting = self.watches.spawn(reflect);
        let (mut changes, sender) = (cache.subscribe(), self.changes.clone());
        let forwarding = self.watches.spawn(async move {
            while changes.changed().await.is_ok() {
                sender.send_modify(|count| *count += 1);
            }
        });
        self.watched.insert(key, WatchedSecret { cache, tasks: [reflecting, forwarding] });
    }
}

fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(key).map(|data| data.0.as_slice())
}
